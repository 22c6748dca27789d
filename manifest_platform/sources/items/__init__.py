"""Items that programs register: URLs, files, spans of time. Nothing lands for them; the platform's own steps ignore them."""
