// The softmax of a row of positions, some of which may not be read.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "floats.h"

namespace {

constexpr float DEEPEST = -87.0f;  // e^x is a normal number down to here, and counts for nothing below

// The softmax of the allowed positions; the others, and all of them where none is allowed, get 0. The exponential of a position is
// multiplied by its factor, if there are factors.
void weigh(float* scores, const float* allowed, int64_t positions, const float* factors = nullptr) {
    const Vector none = all(-std::numeric_limits<float>::infinity());
    Vector tops = none;
    Integers finite = ~Integers{};
    for (int64_t j = 0; j < positions; j += LANES) {
        const Vector x = load(scores + j);
        const Integers here = load(allowed + j) != Vector{};
        finite &= (x - x == Vector{}) | ~here;
        const Vector seen = here ? x : none;
        tops = seen > tops ? seen : tops;
    }
    float top = tops[0];
    int32_t all_finite = -1;
    for (int64_t l = 0; l < LANES; l++) {
        top = std::max(top, tops[l]);
        all_finite &= finite[l];
    }
    float sum = 0;
    if (all_finite) {
        Vector sums{};
        for (int64_t j = 0; j < positions; j += LANES) {
            Vector x = load(scores + j) - all(top);
            x = x < all(DEEPEST) ? all(DEEPEST) : x;
            x = x > all(0.0f) ? all(0.0f) : x;
            const Vector scaled = factors ? exponential(x) * load(factors + j) : exponential(x);
            const Vector e = load(allowed + j) != Vector{} ? scaled : Vector{};
            store(scores + j, e);
            sums += e;
        }
        sum = sum_lanes<float>(sums);
    } else {
        for (int64_t j = 0; j < positions; j++) {
            const float e = std::exp(scores[j] - top) * (factors ? factors[j] : 1.0f);
            sum += scores[j] = allowed[j] != 0 ? e : 0.0f;
        }
    }
    const Vector scale = all(sum != 0 ? 1 / sum : 0.0f);  // NaN is not 0
    for (int64_t j = 0; j < positions; j += LANES)
        store(scores + j, load(allowed + j) != Vector{} ? load(scores + j) * scale : Vector{});
}

// The gradients of scores from those of their weights, grad + carried, of which grad may be null; carried may be
// `scores`. For sigmoids, `slopes` are those of their logarithms; null for a softmax.
void softmax_gradients(const float* grad, const float* carried, const float* weight, const float* slopes,
                       float sharpening, int64_t positions, float* scores) {
    Vector means{};
    for (int64_t j = 0; j < positions; j += LANES) {
        const int64_t here = positions - j;
        const Vector w = load_some(weight + j, here);
        Vector g = load(carried + j);
        if (grad) g += load_some(grad + j, here);
        means += w == Vector{} ? Vector{} : w * g;
        store(scores + j, g);
    }
    const Vector mean = all(sum_lanes<float>(means)), factor = all(sharpening);
    for (int64_t j = 0; j < positions; j += LANES) {
        const Vector w = load_some(weight + j, positions - j);
        Vector g = w == Vector{} ? Vector{} : w * (load(scores + j) - mean) * factor;
        if (slopes) g *= load_some(slopes + j, positions - j);
        store(scores + j, g);
    }
}

}  // namespace
