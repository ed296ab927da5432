"""What the optimizers refuse: errors that name the function and the argument."""

from __future__ import annotations

import pytest

import fnx.numpy as fnp
from fnx import optim
from fnx.errors import ArgumentError, OptionError

NAN = float("nan")
BAD = [
    (lambda: optim.adagrad(0.1, -1.0), "adagrad: initial_accumulator_value must be"),
    (lambda: optim.rmsprop(0.1, 1.5), "rmsprop: decay must be from 0 to 1, got 1.5"),
    (lambda: optim.rmsprop(0.1, eps=0.0), "rmsprop: eps must be a finite number above"),
    (lambda: optim.rmsprop(0.1, nesterov=True), "rmsprop: nesterov has a meaning only"),
    (lambda: optim.adadelta(0.1, rho=-1), "adadelta: rho must be"),
    (lambda: optim.adamax(0.1, b1=1.0), "adamax: b1 must be from 0 up to, not incl"),
    (lambda: optim.adamaxw(0.1, weight_decay=-1), "adamaxw: weight_decay must be"),
    (lambda: optim.nadam(-0.1), "nadam: learning_rate must be"),
    (lambda: optim.nadamw(0.1, weight_decay=NAN), "nadamw: weight_decay must be"),
    (lambda: optim.amsgrad(0.1, eps=0), "amsgrad: eps and eps_root are both 0"),
    (lambda: optim.adabelief(0.1, b2=2), "adabelief: b2 must be"),
    (lambda: optim.yogi(0.1, eps=-1), "yogi: eps must be"),
    (lambda: optim.radam(0.1, threshold=0), "radam: threshold must be"),
    (lambda: optim.adan(0.1, b3=1.0), "adan: b3 must be"),
    (lambda: optim.novograd(0.1, weight_decay=-1), "novograd: weight_decay must be"),
    (lambda: optim.lamb(0.1, b1=-1), "lamb: b1 must be"),
    (lambda: optim.lars(0.1, momentum=2.0), "lars: momentum must be"),
    (lambda: optim.fromage(-1.0), "fromage: learning_rate must be"),
    (lambda: optim.lion(0.1, b1=2.0), "lion: b1 must be"),
    (lambda: optim.scale_by_lion(mode="soft"), "mode must be one of hard, smooth, re"),
    (lambda: optim.signum(0.1, 1.5), "signum: beta must be"),
    (lambda: optim.rprop(0.0), "rprop: learning_rate must be a finite number above 0"),
    (lambda: optim.adafactor(0.1, 0), "adafactor: min_dim_size_to_factor must be 1 or"),
    (lambda: optim.adafactor(clipping_threshold=0), "adafactor: clipping_threshold mu"),
    (lambda: optim.sm3(0.1, 2.0), "sm3: momentum must be"),
    (lambda: optim.noisy_sgd(0.1, eta=-1, key=0), "noisy_sgd: eta must be"),
    (
        lambda: optim.polyak_sgd(variant="max"),
        "polyak_sgd: variant must be sps or sps+",
    ),
    (lambda: optim.optimistic_gradient_descent(0.1, NAN), "alpha must be a finite"),
    (lambda: optim.scale_by_distance_over_gradients(0), "reps_rel must be"),
    (lambda: optim.ema(2.0), "ema: decay must be"),
    (lambda: optim.apply_every(0), "apply_every: k must be 1 or more"),
    (lambda: optim.clip_by_block_rms(0), "clip_by_block_rms: threshold must be"),
    (lambda: optim.adaptive_grad_clip(0), "adaptive_grad_clip: clipping must be"),
    (lambda: optim.scale_by_trust_ratio(-1), "scale_by_trust_ratio: min_norm must be"),
    (lambda: optim.lookahead(optim.sgd(0.1), 0, 0.5), "lookahead: sync_period must be"),
    (lambda: optim.MultiSteps(optim.sgd(0.1), 0), "every_k_schedule must be 1 or more"),
    (
        lambda: optim.apply_if_finite(optim.sgd(0.1), -1),
        "apply_if_finite: max_consecutive_errors must be 0 or more, got -1",
    ),
]
WRAPPERS = [
    lambda x: optim.with_extra_args_support(x),
    lambda x: optim.named_chain(("a", x)),
    lambda x: optim.masked(x, True),
    lambda x: optim.MultiSteps(x, 1),
    lambda x: optim.apply_if_finite(x, 1),
    lambda x: optim.conditionally_mask(x, lambda step: True),
    lambda x: optim.lookahead(x, 1, 0.5),
    lambda x: optim.flatten(x),
    lambda x: optim.selective_transform(x, freeze_mask=True),
]
NEED_PARAMS = {
    "lamb: weight decay": lambda: optim.lamb(0.1),
    "lion: weight decay": lambda: optim.lion(0.1),
    "novograd: weight decay": lambda: optim.novograd(0.1, weight_decay=0.1),
    "adafactor: the scale": lambda: optim.adafactor(0.1),
    "scale_by_trust_ratio: the trust ratio": optim.scale_by_trust_ratio,
    "adaptive_grad_clip: the limit": lambda: optim.adaptive_grad_clip(0.1),
    "keep_params_nonnegative: the limit": optim.keep_params_nonnegative,
}


@pytest.mark.parametrize(("make", "match"), BAD, ids=[m for _, m in BAD])
def test_bad_values(make, match):
    with pytest.raises(OptionError, match=match.replace("+", r"\+")):
        make()


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_what_is_no_transformation(wrap):
    with pytest.raises(ArgumentError, match="must be a gradient transformation"):
        wrap(optim.scale)


@pytest.mark.parametrize("text", NEED_PARAMS)
def test_parameters_that_are_missing(text):
    optimizer = NEED_PARAMS[text]()
    state = optimizer.init(fnp.ones(2))
    with pytest.raises(ArgumentError, match=f"{text} needs the parameters; call"):
        optimizer.update(fnp.ones(2), state)
