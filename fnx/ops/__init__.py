"""Layer 2: the first-order primitives, each in one place with all its rules.

`families` has the rules that many primitives share, `arithmetic` the four operations
that derivatives are made of; the other files hold one kind of operation each, an
operation beside its transpose. Importing this package registers every primitive.
Next on the walk: `fnx.transforms`.
"""
