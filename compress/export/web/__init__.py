"""The `web` format: a folder that is served as it is, with the model, its runtime in WebAssembly and a page.

`page/` holds the page's files; `npm_assets` brings the runtime and the tokenizer, of which nothing is stored here.
"""
