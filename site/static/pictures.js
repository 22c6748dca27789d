// Draws the pictures of a page, in the colors of the theme that the reader chose, and again when it changes.
(() => {
  const sources = new Map();
  const dark = () => {
    const theme = document.body.dataset.theme;
    return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  };
  const draw = () => {
    mermaid.initialize({ startOnLoad: false, theme: dark() ? "dark" : "neutral", securityLevel: "strict" });
    for (const [picture, source] of sources) {
      picture.removeAttribute("data-processed");
      picture.textContent = source;
    }
    return mermaid.run({ nodes: [...sources.keys()] });
  };
  addEventListener("DOMContentLoaded", () => {
    for (const picture of document.querySelectorAll("pre.mermaid")) sources.set(picture, picture.textContent);
    draw();
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  });
})();
