"""The models of `models.py` in PyTorch, as its users write them.

Receives PyTorch as an argument, since it may not be installed. Next on the walk:
`command.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fnx_cuda.check.models import Model

RATE = 1e-3


def training(torch: Any, name: str, model: Model, compiled: bool) -> Callable[[], Any]:
    """Steps of plain descent on a GPU, eager or compiled."""
    layers = _MODELS[name](torch, model).cuda()
    batch = [torch.as_tensor(x).cuda() for x in model.batch]
    inputs, labels = batch if len(batch) == 2 else (batch[0][:, :-1], batch[0][:, 1:])
    labels = labels.long()
    optimizer = torch.optim.SGD(layers.parameters(), lr=RATE)
    torch.backends.cuda.matmul.allow_tf32 = False

    def loss() -> Any:
        scores = layers(inputs)
        return torch.nn.functional.cross_entropy(
            scores.reshape(-1, scores.shape[-1]), labels.reshape(-1)
        )

    found = torch.compile(loss, mode="max-autotune") if compiled else loss

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        found().backward()
        optimizer.step()

    return step


def _mlp(torch: Any, model: Model) -> Any:
    nn = torch.nn
    found: list[Any] = []
    for weights, _ in model.params:
        found += [nn.Linear(*weights.shape), nn.ReLU()]
    return nn.Sequential(*found[:-1])


def _vgg(torch: Any, model: Model) -> Any:
    nn = torch.nn
    kernels = [layer[0] for layer in model.params[0]]
    found: list[Any] = []
    for number, kernel in enumerate(kernels):
        count, before = kernel.shape[:2]
        found += [
            nn.Conv2d(before, count, 3, padding=1, bias=False),
            nn.BatchNorm2d(count),
            nn.ReLU(),
        ]
        if number in (1, 3, 6, 9, 12):
            found.append(nn.MaxPool2d(2))
    return nn.Sequential(*found, nn.Flatten(), nn.Linear(*model.params[1].shape))


def _gpt(torch: Any, model: Model) -> Any:
    nn, params = torch.nn, model.params
    words, width = params["words"].shape
    tokens = len(params["places"])
    heads = model.heads

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Any) -> Any:
            batch = x.shape[0]
            parts = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, heads, -1)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
            hidden = nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")
            return x + self.down(hidden)

    class Gpt(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.places = nn.Parameter(torch.zeros(tokens, width))
            self.blocks = nn.Sequential(*[Block() for _ in params["blocks"]])
            self.norm = nn.LayerNorm(width)

        def forward(self, text: Any) -> Any:
            x = self.blocks(self.words(text) + self.places)
            return self.norm(x) @ self.words.weight.T

    return Gpt()


_MODELS: dict[str, Callable[[Any, Any], Any]] = {
    "MLP": _mlp,
    "GPT": _gpt,
    "VGG16-BN": _vgg,
}
