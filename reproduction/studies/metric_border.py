"""How the share of runaways falls with sigma, factored: the exponent, derived at the border between two fates.

Near the zero, three factors descend along a form f of degree 3 in k, u and v: f = <T(v), k^t u>, T(v) = a U + b J, with
a = tr v - tr vP and b = tr vP. Its flow is scale-free: a start of size sigma takes the path of a start of size 1 until
it has grown by R ~ 1/sigma. Rays of this flow are its critical points on the sphere. On one of them alpha and beta have
opposite signs: b = -2 a / M, where all singular values of T are equal, the mean direction being mirrored. Besides drift
along the ray's family, it has one direction that leaves it, at a rate h times that at which the ray grows: on one side
beta takes over and turns alpha, on the other beta dies out. Starts that are still there after growing by R fill a layer
around that ray's basin border of width R^(1 - h), so that

    P(runaway) ~ sigma^(h - 1).

An argument of leading order, not a proof. Neither h nor the border depends on the learning rate, nor on how the rest of
k^t u is spread over its directions.
"""

import math

import numpy as np


def border_ratio(n_categories: int, n_positions: int) -> float:
    """beta / alpha on the ray."""
    return -2 * (n_categories - 1) / n_positions


def factored_exponent(n_categories: int, n_positions: int) -> float:
    """h - 1: the slope of log P against log sigma, for sigma -> 0. It needs at least 3 positions."""
    N, M, K = n_categories, n_positions, n_positions - 1
    shift, ones = np.eye(M, K), np.ones((M, K))
    # Scaled so that a = 1, and that the ray's factors grow at the rate 1.
    b = -2 / M
    pull = shift + b * ones
    z = np.zeros((2, K))
    z[0], z[1, :2] = 1 / math.sqrt(K), (math.sqrt(0.5), -math.sqrt(0.5))
    weight = np.array([2 / (M * K), 1 / (N - 1) + 2 * (M - 2) / (M * M * K)])
    u = np.sqrt(weight)[:, None] * z
    k = u @ pull.T
    along_shift = math.sqrt(N - 1) * np.concatenate([(u @ shift.T), (k @ shift)], axis=1)
    along_mean = np.concatenate([u @ ones.T, k @ ones], axis=1)
    size = M + K
    hessian = np.zeros((2 * size + 2, 2 * size + 2))
    for channel in range(2):
        own = slice(channel * size, (channel + 1) * size)
        hessian[own, own] = np.block([[np.zeros((M, M)), pull], [pull.T, np.zeros((K, K))]])
        hessian[own, -2], hessian[own, -1] = along_shift[channel], along_mean[channel]
    hessian[-2:] = hessian[:, -2:].T
    ray = np.concatenate([*np.concatenate([k, u], axis=1), [1 / math.sqrt(N - 1), b]])
    assert np.allclose(hessian @ ray, 2 * ray)
    off_ray = hessian - 2 * np.outer(ray, ray) / (ray @ ray)
    return float(np.linalg.eigvalsh(off_ray)[-1]) - 1
