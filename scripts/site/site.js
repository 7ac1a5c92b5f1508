// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The theme puts tables into boxes that scroll; keys reach them.
const reach = () => document.querySelectorAll(".md-typeset__scrollwrap").forEach(box => { box.tabIndex = 0; });
new MutationObserver(reach).observe(document, {childList: true, subtree: true});
reach();
