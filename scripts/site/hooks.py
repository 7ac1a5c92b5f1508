# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What mkdocs makes, so that it can be read by all who read it; scripts/check-site says
what for."""


def on_page_content(html, **_):
    """Tables without a heading of a column have an empty cell there."""
    return html.replace("<th></th>", "<td></td>")


def name_search(output):
    output = output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')
    return output.replace('class="md-search__scrollwrap"', 'class="md-search__scrollwrap" tabindex="0"')


def on_post_page(output, **_):
    return name_search(output)


def on_post_template(output_content, **_):
    """Of the page of an address that is none."""
    return name_search(output_content)
