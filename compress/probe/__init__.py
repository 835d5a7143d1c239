"""What each layer of an encoder knows, what its heads look at, and what training or pruning changed (`compress probe`).

`probe_tasks` and `surface_tasks` say what is asked, `states` encodes all texts once, and `linear_probes`,
`head_patterns` and `layer_change` answer. `probe_models` puts them together; `probe_result` and `probe_page` show it.
"""
