// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is wider than the page scrolls in a box of its own: tables, which the theme puts
// into one, and code, of which it looks at what is in sight alone. Keys reach them.
const reach = () => document.querySelectorAll(".md-typeset__scrollwrap, pre > code").forEach(box => {
  if (box.tabIndex < 0)
    box.tabIndex = 0;
});
new MutationObserver(reach).observe(document, {childList: true, subtree: true, attributes: true, attributeFilter: ["tabindex"]});
reach();
