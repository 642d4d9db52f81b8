// Local attention by dot products: each query attends to the W = 2D+1 positions around its center; forward and backward.
//
//     p_w = softmax(scale · q · k_w),    a_w = p_w · e^{−(s_w − c)² / 2σ²},    output = Σ_w a_w · v_w
//
//     h_w = a_w · (∂output · v_w + ∂a_w),    ∂s_w = h_w − p_w Σ h,    ∂c = Σ_w h_w (s_w − c) / σ²
//     ∂q = scale Σ_w ∂s_w k_w,    ∂k_w += scale ∂s_w q,    ∂v_w += a_w ∂output
//
// Positions are read in place, nothing is gathered. The backward computes the weights again, in two passes: first
// over queries and then over keys, so that every number is summed in an order that does not depend on the number of
// threads. Plain C interface; strides in elements, the entries of a row contiguous. NaN stays NaN.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "threads.h"
#include "vectors.h"

namespace {

constexpr int64_t KEYS = 256;   // keys, at least, that one task of the backward sums the gradients of
constexpr int64_t BLOCKS = 64;  // such tasks, at most, in a row: each looks at every query's window

typedef float Floats __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(16)));

// The sum of a vector's parts of 16 bytes.
template <typename Part, typename Whole>
Part fold(Whole x) {
    Part parts[sizeof x / sizeof(Part)];
    std::memcpy(parts, &x, sizeof x);
    Part sum = parts[0];
    for (size_t n = 1; n < sizeof x / sizeof(Part); n++) sum += parts[n];
    return sum;
}

// to[w] = the sum of x[w]'s lanes, for four vectors at once.
void sum_four(const VectorOf<float>* x, float* to) {
    const Floats a = fold<Floats>(x[0]), b = fold<Floats>(x[1]), c = fold<Floats>(x[2]), d = fold<Floats>(x[3]);
    const Floats ab = Floats{a[0], b[0], a[1], b[1]} + Floats{a[2], b[2], a[3], b[3]};
    const Floats cd = Floats{c[0], d[0], c[1], d[1]} + Floats{c[2], d[2], c[3], d[3]};
    const Floats sums = Floats{ab[0], ab[1], cd[0], cd[1]} + Floats{ab[2], ab[3], cd[2], cd[3]};
    std::memcpy(to, &sums, sizeof sums);
}
void sum_four(const VectorOf<double>* x, double* to) {
    for (int w = 0; w < 4; w += 2) {
        const Doubles a = fold<Doubles>(x[w]), b = fold<Doubles>(x[w + 1]);
        const Doubles sums = Doubles{a[0], b[0]} + Doubles{a[1], b[1]};
        std::memcpy(to + w, &sums, sizeof sums);
    }
}

// to[w] = x · rows[w] for up to four rows at once.
template <int count, typename Real>
void dot_tile(const Real* x, const Real* rows, int64_t stride, int64_t size, Real* to) {
    constexpr int64_t LANES = LANES_OF<Real>;
    VectorOf<Real> totals[4] = {};
    int64_t d = 0;
    for (; d + LANES <= size; d += LANES) {
        const VectorOf<Real> xs = load(x + d);
        for (int w = 0; w < count; w++) totals[w] += xs * load(rows + w * stride + d);
    }
    Real sums[4];
    sum_four(totals, sums);
    for (; d < size; d++)
        for (int w = 0; w < count; w++) sums[w] += x[d] * rows[w * stride + d];
    std::copy_n(sums, count, to);
}

template <typename Real>
void dots(const Real* x, const Real* rows, int64_t stride, int64_t count, int64_t size, Real* to) {
    int64_t w = 0;
    for (; w + 4 <= count; w += 4) dot_tile<4>(x, rows + w * stride, stride, size, to + w);
    for (; w < count; w++) dot_tile<1>(x, rows + w * stride, stride, size, to + w);
}

// to = factor · Σ_w weights[w] · rows[w], over some entries of a row: `count` vectors of them.
template <int count, typename Real>
void blend_tile(const Real* weights, const Real* rows, int64_t stride, int64_t positions, Real factor, Real* to) {
    constexpr int64_t LANES = LANES_OF<Real>;
    VectorOf<Real> totals[count];
    for (int n = 0; n < count; n++) totals[n] = VectorOf<Real>{};
    for (int64_t w = 0; w < positions; w++)
        for (int n = 0; n < count; n++) totals[n] += weights[w] * load(rows + w * stride + n * LANES);
    for (int n = 0; n < count; n++) store<Real>(to + n * LANES, factor * totals[n]);
}

template <typename Real>
void blend(const Real* weights, const Real* rows, int64_t stride, int64_t positions, int64_t size, Real factor, Real* to) {
    constexpr int64_t LANES = LANES_OF<Real>;
    int64_t d = 0;
    for (; d + 8 * LANES <= size; d += 8 * LANES) blend_tile<8>(weights, rows + d, stride, positions, factor, to + d);
    for (; d + LANES <= size; d += LANES) blend_tile<1>(weights, rows + d, stride, positions, factor, to + d);
    for (; d < size; d++) {
        Real total = 0;
        for (int64_t w = 0; w < positions; w++) total += weights[w] * rows[w * stride + d];
        to[d] = factor * total;
    }
}

// to += factor · x
template <typename Real>
void add(Real factor, const Real* x, int64_t size, Real* to) {
    constexpr int64_t LANES = LANES_OF<Real>;
    int64_t d = 0;
    for (; d + LANES <= size; d += LANES) store<Real>(to + d, load(to + d) + factor * load(x + d));
    for (; d < size; d++) to[d] += factor * x[d];
}

template <typename Real>
struct Rows {
    const Real* at;
    int64_t batch, row;

    const Real* operator()(int64_t b, int64_t i) const { return at + b * batch + i * row; }
};

struct Mask {
    const uint8_t* at;  // null where all may be read
    int64_t batch, row, position;
};

// The positions of a window that lie in the sentence and within reach: numbers first..last-1 of the window's W.
struct Span {
    int64_t first, last;
};

// Positions are as torch computes them, in the center's own precision, or edges would differ.
template <typename Real, typename Position>
struct Problem {
    Rows<Real> query, key, value;
    const Position* center;
    const int64_t* start;
    Mask mask;
    int64_t B, L, S, D, V, W;
    Position radius, spread;  // spread is 2σ², for a Gaussian
    bool gaussian;
    Real scale;

    Position distance(int64_t n, int64_t w) const { return (Position)(start[n] + w) - center[n]; }

    Span span(int64_t n) const {
        const int64_t from = start[n];
        if (from >= S || from <= -W) return {0, 0};
        Span span{std::max<int64_t>(-from, 0), std::min(W, S - from)};
        // Between two positions a center has 2D of them within reach, and the last of the 2D+1 is too far.
        while (span.last > span.first && !(distance(n, span.last - 1) <= radius)) span.last--;
        return span;
    }

    // p of the span's positions; false where none may be read.
    bool shares(int64_t n, Span span, Real* to) const {
        if (span.first >= span.last) return false;
        const int64_t b = n / L, i = n % L, position = start[n] + span.first, count = span.last - span.first;
        dots(query(b, i), key(b, position), key.row, count, D, to);
        const uint8_t* open = mask.at ? mask.at + b * mask.batch + i * mask.row + position * mask.position : nullptr;
        bool any = !open;
        Real top = -std::numeric_limits<Real>::infinity();
        for (int64_t w = 0; w < count; w++) {
            to[w] *= scale;
            if (open && !open[w * mask.position]) to[w] = -std::numeric_limits<Real>::infinity();
            else any = true;
            top = to[w] > top ? to[w] : top;
        }
        if (!any) return false;
        Real total = 0;
        for (int64_t w = 0; w < count; w++) total += to[w] = std::exp(to[w] - top);
        for (int64_t w = 0; w < count; w++) to[w] = to[w] == 0 ? 0 : to[w] / total;  // closed positions stay 0 beside NaN
        return true;
    }

    // a = p · Gaussian; `shares` and `weights` may be one.
    void weights(int64_t n, Span span, const Real* shares, Real* weights) const {
        const int64_t count = span.last - span.first;
        if (!gaussian) {
            if (weights != shares) std::copy_n(shares, count, weights);
            return;
        }
        for (int64_t w = 0; w < count; w++) {
            const Position d = distance(n, span.first + w);
            weights[w] = shares[w] * (Real)std::exp(-(d * d) / spread);
        }
    }

    // A center that is NaN has no window, but its Gaussian is NaN all the same.
    bool lost(int64_t n) const { return gaussian && std::isnan(center[n]); }

    void forward_row(int64_t n, Real* output, Real* all_weights) const {
        const Span seen = span(n);
        Real* own = all_weights + seen.first;
        std::fill_n(all_weights, W, (Real)0);
        if (!shares(n, seen, own)) {
            const Real nothing = lost(n) ? std::numeric_limits<Real>::quiet_NaN() : 0;
            std::fill_n(all_weights, W, nothing);
            std::fill_n(output, V, nothing);
            return;
        }
        weights(n, seen, own, own);
        const Real* first = value(n / L, start[n] + seen.first);
        blend(own, first, value.row, seen.last - seen.first, V, (Real)1, output);
    }

    // Writes ∂q and ∂c, and ∂s and a for the keys' pass; `h` is room for W numbers.
    void query_row(int64_t n, const Real* d_output, const Real* d_weights, Real* d_scores, Real* a, Real* h, Real* dq,
                   Position* dc) const {
        const Span seen = span(n);
        const int64_t count = seen.last - seen.first, position = start[n] + seen.first, b = n / L;
        if (!shares(n, seen, d_scores)) {
            const Real nothing = lost(n) ? std::numeric_limits<Real>::quiet_NaN() : 0;
            std::fill_n(dq, D, nothing);
            dc[n] = nothing;
            std::fill_n(d_scores, std::max<int64_t>(count, 0), (Real)0);
            std::fill_n(a, std::max<int64_t>(count, 0), (Real)0);
            return;
        }
        weights(n, seen, d_scores, a);
        if (d_output) dots(d_output, value(b, position), value.row, count, V, h);
        else std::fill_n(h, count, (Real)0);
        Real total = 0, pull = 0;
        for (int64_t w = 0; w < count; w++) {
            const Real grad = d_weights ? h[w] + d_weights[seen.first + w] : h[w];
            h[w] = a[w] == 0 ? 0 : a[w] * grad;
            total += h[w];
        }
        if (gaussian) {
            for (int64_t w = 0; w < count; w++) pull += h[w] * (Real)distance(n, seen.first + w);
            pull *= 2 / (Real)spread;
        }
        dc[n] = (Position)pull;
        for (int64_t w = 0; w < count; w++) d_scores[w] = h[w] - d_scores[w] * total;
        blend(d_scores, key(b, position), key.row, count, D, scale, dq);
    }

    // Adds the contribution of query n to ∂k and ∂v of the keys from..to-1.
    void add_to_keys(int64_t n, int64_t from, int64_t to, const Real* d_output, const Real* d_scores, const Real* a,
                     Real* dk, Real* dv) const {
        if (start[n] >= to || start[n] <= from - W) return;
        const Span seen = span(n);
        const int64_t b = n / L, position = start[n] + seen.first, end = start[n] + seen.last;
        const Real* q = query(b, n % L);
        for (int64_t s = std::max(position, from); s < std::min(end, to); s++) {
            const int64_t w = s - position;
            if (d_scores[w] != 0) add(scale * d_scores[w], q, D, dk + (b * S + s) * D);
            if (d_output && a[w] != 0) add(a[w], d_output, V, dv + (b * S + s) * V);
        }
    }
};

template <typename Real, typename Position>
void forward(const Problem<Real, Position>& problem, Real* output, Real* weights, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < problem.B * problem.L; n++)
        problem.forward_row(n, output + n * problem.V, weights + n * problem.W);
}

int64_t backward_scratch(int64_t B, int64_t L, int64_t W, int threads) {
    return (B >= threads ? 3 * threads : 2 * B * L + threads) * W;
}

// A key's gradients are summed over queries in their order, by one thread: with enough rows in the batch a thread takes
// a whole row at a time; else all queries come first and then, in blocks, all keys.
template <typename Real, typename Position>
void backward(const Problem<Real, Position>& problem, const Real* d_output, const Real* d_weights, Real* scratch,
              Real* dq, Real* dk, Real* dv, Position* dc, int threads) {
    const int64_t B = problem.B, L = problem.L, S = problem.S, D = problem.D, V = problem.V, W = problem.W;
    const auto own = [](const Real* rows, int64_t n, int64_t width) { return rows ? rows + n * width : nullptr; };
    const auto clear = [&](int64_t b, int64_t from, int64_t to) {
        std::fill_n(dk + (b * S + from) * D, (to - from) * D, (Real)0);
        std::fill_n(dv + (b * S + from) * V, (to - from) * V, (Real)0);
    };
    if (B >= threads) {
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
        for (int64_t b = 0; b < B; b++) {
            Real *d_scores = scratch + 3 * this_thread() * W, *a = d_scores + W, *h = a + W;
            clear(b, 0, S);
            for (int64_t n = b * L; n < (b + 1) * L; n++) {
                const Real* grad = own(d_output, n, V);
                problem.query_row(n, grad, own(d_weights, n, W), d_scores, a, h, dq + n * D, dc);
                problem.add_to_keys(n, 0, S, grad, d_scores, a, dk, dv);
            }
        }
        return;
    }
    Real *d_scores = scratch, *a = d_scores + B * L * W, *h = a + B * L * W;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < B * L; n++)
        problem.query_row(n, own(d_output, n, V), own(d_weights, n, W), d_scores + n * W, a + n * W,
                          h + this_thread() * W, dq + n * D, dc);
    const int64_t block = std::max(KEYS, (S + BLOCKS - 1) / BLOCKS), blocks = (S + block - 1) / block;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t task = 0; task < B * blocks; task++) {
        const int64_t b = task / blocks, from = task % blocks * block, to = std::min(S, from + block);
        clear(b, from, to);
        for (int64_t n = b * L; n < (b + 1) * L; n++)
            problem.add_to_keys(n, from, to, own(d_output, n, V), d_scores + n * W, a + n * W, dk, dv);
    }
}

// The problem as window.py describes it: an address and strides each; `gaussian` and the two `double_…` are 0 or 1.
struct Arguments {
    const void* query;
    int64_t query_batch, query_row;
    const void* key;
    int64_t key_batch, key_row;
    const void* value;
    int64_t value_batch, value_row;
    const void* mask;
    int64_t mask_batch, mask_row, mask_position;
    const void* center;  // this and start are contiguous (B, L)
    const int64_t* start;
    int64_t B, L, S, D, V, radius, gaussian, double_numbers, double_positions;
    double spread, scale;
};

template <typename Real, typename Position>
Problem<Real, Position> problem_of(const Arguments& a) {
    return {{static_cast<const Real*>(a.query), a.query_batch, a.query_row},
            {static_cast<const Real*>(a.key), a.key_batch, a.key_row},
            {static_cast<const Real*>(a.value), a.value_batch, a.value_row},
            static_cast<const Position*>(a.center),
            a.start,
            {static_cast<const uint8_t*>(a.mask), a.mask_batch, a.mask_row, a.mask_position},
            a.B, a.L, a.S, a.D, a.V, 2 * a.radius + 1,
            (Position)a.radius, (Position)a.spread, a.gaussian != 0, (Real)a.scale};
}

// Calls run(problem, Real, Position) with numbers and positions of the types they have.
template <typename Run>
void with_types(const Arguments& a, Run run) {
    if (a.double_numbers && a.double_positions) run(problem_of<double, double>(a), 0.0, 0.0);
    else if (a.double_numbers) run(problem_of<double, float>(a), 0.0, 0.0f);
    else if (a.double_positions) run(problem_of<float, double>(a), 0.0f, 0.0);
    else run(problem_of<float, float>(a), 0.0f, 0.0f);
}

}  // namespace

extern "C" {

// output (B, L, V) and weights (B, L, W), contiguous as are all results and gradients.
void foci_window_forward(const Arguments* arguments, void* output, void* weights, int threads) {
    with_types(*arguments, [&](const auto& problem, auto number, auto) {
        using Real = decltype(number);
        forward(problem, static_cast<Real*>(output), static_cast<Real*>(weights), threads);
    });
}

// Numbers of scratch that the backward needs.
int64_t foci_window_scratch(int64_t B, int64_t L, int64_t W, int threads) { return backward_scratch(B, L, W, threads); }

// The gradients of query, key, value and center; d_output or d_weights may be null.
void foci_window_backward(const Arguments* arguments, const void* d_output, const void* d_weights, void* scratch,
                          void* dq, void* dk, void* dv, void* dc, int threads) {
    with_types(*arguments, [&](const auto& problem, auto number, auto position) {
        using Real = decltype(number);
        using Position = decltype(position);
        backward(problem, static_cast<const Real*>(d_output), static_cast<const Real*>(d_weights),
                 static_cast<Real*>(scratch), static_cast<Real*>(dq), static_cast<Real*>(dk), static_cast<Real*>(dv),
                 static_cast<Position*>(dc), threads);
    });
}

}  // extern "C"
