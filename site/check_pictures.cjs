// Parses pictures without a browser: node check_pictures.cjs SCRIPT < ["source", …]; prints [null or "error", …].
//
// The script's sanitizer of HTML needs a browser's document, and is a bare function without one. Parsing needs none of its
// results: so the two methods that the script calls are given to all functions here.
Function.prototype.addHook = () => {};
Function.prototype.sanitize = (text) => text;

const fs = require("fs");
require("vm").runInThisContext(fs.readFileSync(process.argv[2], "utf8"));

(async () => {
  const errors = [];
  for (const source of JSON.parse(fs.readFileSync(0, "utf8"))) {
    errors.push(await globalThis.mermaid.parse(source).then(() => null, (error) => String(error.message || error)));
  }
  process.stdout.write(JSON.stringify(errors));
})();
