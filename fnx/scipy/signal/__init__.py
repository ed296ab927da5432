"""fnx.scipy.signal: convolutions, and spectra of segments of a signal.

Receives arrays, gives arrays; names and meaning are those of `jax.scipy.signal`.
The walk begins with `convolving.py`.
"""

from fnx.scipy.signal.convolving import (
    convolve,
    convolve2d,
    correlate,
    correlate2d,
    fftconvolve,
)
from fnx.scipy.signal.spectra import csd, detrend, istft, stft, welch

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]
