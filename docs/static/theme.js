// A picture follows the theme of the page, which a reader can switch, not that of the system.
const follow = () => {
  const theme = document.body.dataset.theme;
  const system = theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches;
  for (const source of document.querySelectorAll("picture source[srcset*='-dark']"))
    source.media = theme === "dark" || system ? "all" : "not all";
};
addEventListener("DOMContentLoaded", () => {
  follow();
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
});
