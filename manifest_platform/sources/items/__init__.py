"""Items that programs register: URLs, files, spans of time. Nothing of them lands, and no step of the platform does them."""
