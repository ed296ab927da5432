"""Training on many devices: `python -m fnx.demo parallel`, and recipes to copy.

Each recipe is a training step as one replica sees it, written against named axes, so
that it runs under `vmap(axis_name=...)`, `pmap` and `shard_map` alike. One rule holds
for all of them: **each replica differentiates its share of the loss** (the shares of
all replicas sum to the loss), and the gradient of a parameter of which replicas have
copies is summed along the axes that it is copied along.

Read `model.py` (the network, as one device runs it) and `replicas.py` (how arrays are
cut), then the recipes: `data.py`, `tensor.py`, `pipeline.py`, `sequence.py`, and
`cube.py`, which joins three; `checks.py` compares each with one device.
"""
