/* What every page needs and the theme does not do. */
(() => {
  // Opened from a disk, a page may not read its neighbours: search then lists titles without excerpts.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  // Roles that docutils writes and screen readers no longer know.
  addEventListener("DOMContentLoaded", () => {
    for (const entry of document.querySelectorAll(".citation-list, .citation")) entry.removeAttribute("role");
  });

  // Paper is white.
  const root = document.documentElement;
  let theme;
  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = theme;
  });
})();
