// Correlations of filters with a signal, out[c, o] = Σ_k taps[c, k] · signal[o + k], by fewer products than that has.
//
// With the even and the odd taps (h0, h1), samples (x0, x1) and outputs (y0, y1), and x0' = x0 one sample later,
//
//     y0 = h0·x0 + h1·x1  = h0·(x0 − x1) + (h0 + h1)·x1
//     y1 = h0·x1 + h1·x0' = h1·(x0' − x1) + (h0 + h1)·x1
//
// are three correlations of half the size instead of four. Two such splits leave 9 parts of a quarter of the size, with
// 9/16 of the products. Their rounding errors are of the size of those of the direct sum for neighboring outputs.

#pragma once

#include <algorithm>
#include <cstdint>

#include "floats.h"
#include "scratch.h"

namespace {

constexpr int64_t LINE = 16;  // rows of the scratch are whole cache lines
#ifdef __AVX512F__
constexpr int FILTERS = 5;  // filters at a time: with 4 vectors of outputs, their sums fill the registers
#else
constexpr int FILTERS = 2;
#endif
constexpr int WIDE = 4;    // vectors of outputs at a time
constexpr int SUMMED = 8;  // where filters are added up: fewer sums would wait for one another

struct Range {
    int64_t first, last;  // the last is excluded
};

template <typename Number>
Range nonzero(const Number* x, int64_t count) {
    int64_t first = 0, last = count;
    while (first < last && x[first] == 0) first++;
    while (last > first && x[last - 1] == 0) last--;
    return {first, last};
}

// --- direct

// out[c, o] for G filters and N vectors of o; k within `seen`.
template <int G, int N>
void correlate_tile(const float* taps, int64_t taps_row, Range seen, const float* signal, float* out, int64_t out_row) {
    Vector sums[G][N];
    for (int g = 0; g < G; g++)
        for (int n = 0; n < N; n++) sums[g][n] = Vector{};
    for (int64_t k = seen.first; k < seen.last; k++) {
        Vector here[N];
        for (int n = 0; n < N; n++) here[n] = load(signal + k + n * LANES);
        for (int g = 0; g < G; g++) {
            const Vector tap = all(taps[g * taps_row + k]);
            for (int n = 0; n < N; n++) sums[g][n] += tap * here[n];
        }
    }
    for (int g = 0; g < G; g++)
        for (int n = 0; n < N; n++) store(out + g * out_row + n * LANES, sums[g][n]);
}

template <int G, int N>
void correlate_filters(const float* taps, int64_t taps_row, int64_t F, Range seen, const float* signal, float* out,
                       int64_t out_row) {
    for (; F >= G; F -= G, taps += G * taps_row, out += G * out_row)
        correlate_tile<G, N>(taps, taps_row, seen, signal, out, out_row);
    if constexpr (G > 1)
        if (F) correlate_filters<G - 1, N>(taps, taps_row, F, seen, signal, out, out_row);
}

// Which taps k meet some of the samples `heard`, for the outputs o to o + width.
Range seen_taps(Range used, Range heard, int64_t o, int64_t width) {
    const int64_t first = std::max(used.first, heard.first - (o + width - 1));
    return {first, std::max(first, std::min(used.last, heard.last - o))};
}

// The outputs from o on, as whole vectors. `taps` are zero outside of `used`, the signal outside of `heard`.
template <int N>
void correlate_directly(const float* taps, int64_t taps_row, int64_t F, Range used, const float* signal, Range heard,
                        int64_t o, int64_t count, float* out, int64_t out_row) {
    for (; o + (N - 1) * LANES < count; o += N * LANES) {
        const Range seen = seen_taps(used, heard, o, N * LANES);
        correlate_filters<FILTERS, N>(taps, taps_row, F, seen, signal + o, out + o, out_row);
    }
    if constexpr (N > 1)
        if (o < count) correlate_directly<N - 1>(taps, taps_row, F, used, signal, heard, o, count, out, out_row);
}

// out[o] = Σ_c Σ_k taps[c, k] · signals[c, o + k] from o on, as whole vectors. Taps at a distance of LANES meet the same
// vectors of samples, one further each: they stay in registers, where every tap would have to load its own.
template <int N>
void correlate_and_add_directly(const float* taps, int64_t taps_row, int64_t F, Range used, const float* signals,
                                int64_t row, Range heard, int64_t o, int64_t count, float* out) {
    for (; o + (N - 1) * LANES < count; o += N * LANES) {
        Vector sums[N];
        UNROLL for (auto& sum : sums) sum = Vector{};
        const Range seen = seen_taps(used, heard, o, N * LANES);
        const int64_t apart = std::min(LANES, seen.last - seen.first);
        for (int64_t c = 0; c < F; c++)
            for (int64_t first = seen.first; first < seen.first + apart; first++) {
                const float* samples = signals + c * row + o + first;
                Vector here[N];
                UNROLL for (int n = 0; n < N; n++) here[n] = load(samples + n * LANES);
                for (int64_t k = first; k < seen.last; k += LANES) {
                    const Vector tap = all(taps[c * taps_row + k]);
                    UNROLL for (int n = 0; n < N; n++) sums[n] += tap * here[n];
                    UNROLL for (int n = 0; n < N - 1; n++) here[n] = here[n + 1];
                    if (k + LANES < seen.last) here[N - 1] = load(samples + (k - first) + N * LANES);
                }
            }
        UNROLL for (int n = 0; n < N; n++) store(out + o + n * LANES, sums[n]);
    }
    if constexpr (N > 1)
        if (o < count)
            correlate_and_add_directly<N - 1>(taps, taps_row, F, used, signals, row, heard, o, count, out);
}

// --- in parts

// The halves of `count` taps, sample differences and outputs; `count` is even. The signal has one more sample.
void halve_taps(const float* taps, int64_t count, float* h0, float* sum, float* h1) {
    for (int64_t k = 0; k < count / 2; k++) {
        h0[k] = taps[2 * k];
        sum[k] = taps[2 * k] + taps[2 * k + 1];
        h1[k] = taps[2 * k + 1];
    }
}
void halve_signal(const float* signal, int64_t count, float* before, float* x1, float* after) {
    for (int64_t k = 0; k < count / 2; k++) {
        before[k] = signal[2 * k] - signal[2 * k + 1];
        x1[k] = signal[2 * k + 1];
        after[k] = signal[2 * k + 2] - signal[2 * k + 1];
    }
}
void join_halves(const float* before, const float* middle, const float* after, int64_t count, float* out) {
    for (int64_t o = 0; o < count / 2; o++) {
        out[2 * o] = before[o] + middle[o];
        out[2 * o + 1] = middle[o] + after[o];
    }
}

// Correlations of F filters of `width` taps with signals, `count` outputs each: how they are split, and the sizes of rows.
struct Correlation {
    int64_t F, width, count;
    int splits;

    Correlation(int64_t F, int64_t width, int64_t count) : F(F), width(width), count(count) {
        const int64_t least = std::min(width, count);
        splits = least >= 96 ? 2 : least >= 48 ? 1 : 0;  // below, the additions take longer than the products they save
    }

    int64_t parts() const { return splits == 2 ? 9 : splits == 1 ? 3 : 1; }
    int64_t divided(int64_t size) const { return (size + (1 << splits) - 1) >> splits; }
    // Taps, outputs and samples of a part.
    int64_t taps_row() const { return round_up<LINE>(divided(width)); }
    int64_t out_row() const { return round_up<LINE>(divided(count)); }
    int64_t signal_row() const { return out_row() + taps_row(); }
    // What the whole ones must have, zeros included.
    int64_t whole_taps() const { return taps_row() << splits; }
    int64_t whole_signal() const { return (signal_row() << splits) + LINE; }
    int64_t whole_out() const { return out_row() << splits; }

    Range part(Range taps) const {
        for (int level = 0; level < splits; level++) taps = {taps.first / 2, (taps.last + 1) / 2};
        return taps;
    }
    Range part_of_signal(Range heard) const {  // a difference has a sample before its own
        for (int level = 0; level < splits; level++)
            heard = {std::max<int64_t>(0, heard.first / 2 - 1), (heard.last + 1) / 2};
        return heard;
    }

    int64_t taps_size() const { return parts() * F * taps_row(); }
    int64_t signal_size() const { return parts() * signal_row(); }
    int64_t products_size() const { return parts() * F * out_row(); }
    // Room for what has been split or joined once.
    int64_t halves_size() const { return 3 * (std::max({whole_taps(), whole_signal(), whole_out()}) / 2 + LINE); }
};

using Halve = void (*)(const float*, int64_t, float*, float*, float*);

// Splits one row; part p begins at out + p · part_stride. `halves` is scratch.
void split(Halve halve, const float* whole, int64_t row, int splits, int64_t part_stride, float* halves, float* out) {
    if (splits == 0) {
        std::copy_n(whole, row, out);
    } else if (splits == 1) {
        halve(whole, 2 * row, out, out + part_stride, out + 2 * part_stride);
    } else {
        const int64_t half = 2 * row + LINE;  // the last difference of a half sees one more sample
        halve(whole, 4 * row, halves, halves + half, halves + 2 * half);
        for (int h = 0; h < 3; h++) {
            std::fill_n(halves + h * half + 2 * row, LINE, 0.0f);
            float* to = out + 3 * h * part_stride;
            halve(halves + h * half, 2 * row, to, to + part_stride, to + 2 * part_stride);
        }
    }
}

// `taps` (F rows of whole_taps) into parts (part, F, taps_row).
void split_taps(const Correlation& s, const float* taps, int64_t row, float* halves, float* parts) {
    for (int64_t c = 0; c < s.F; c++)
        split(halve_taps, taps + c * row, s.taps_row(), s.splits, s.F * s.taps_row(), halves, parts + c * s.taps_row());
}

// A signal (whole_signal) into parts at a distance of part_stride.
void split_signal(const Correlation& s, const float* signal, int64_t part_stride, float* halves, float* parts) {
    split(halve_signal, signal, s.signal_row(), s.splits, part_stride, halves, parts);
}

// The outputs (whole_out) from those of the parts, at a distance of part_stride.
void join(const Correlation& s, const float* products, int64_t part_stride, float* halves, float* out) {
    const int64_t row = s.out_row();
    if (s.splits == 0) {
        std::copy_n(products, row, out);
    } else if (s.splits == 1) {
        join_halves(products, products + part_stride, products + 2 * part_stride, 2 * row, out);
    } else {
        for (int h = 0; h < 3; h++) {
            const float* from = products + 3 * h * part_stride;
            join_halves(from, from + part_stride, from + 2 * part_stride, 2 * row, halves + h * 2 * row);
        }
        join_halves(halves, halves + 2 * row, halves + 4 * row, 4 * row, out);
    }
}

// out[c, o] from taps and a signal in parts; the rows of `out` have whole_out numbers. The whole taps are zero outside of
// `used`, the whole signal outside of `heard`.
void correlate(const Correlation& s, const float* taps, Range used, const float* signal, Range heard, float* products,
               float* halves, float* out, int64_t out_stride) {
    const int64_t row = s.out_row();
    used = s.part(used), heard = s.part_of_signal(heard);
    for (int64_t p = 0; p < s.parts(); p++)
        correlate_directly<WIDE>(taps + p * s.F * s.taps_row(), s.taps_row(), s.F, used, signal + p * s.signal_row(), heard,
                                 0, row, products + p * s.F * row, row);
    for (int64_t c = 0; c < s.F; c++) join(s, products + c * row, s.F * row, halves, out + c * out_stride);
}

// out[o] = Σ_c Σ_k taps[c, k] · signals[c, o + k], from taps and signals (part, F, signal_row) in parts.
void correlate_and_add(const Correlation& s, const float* taps, Range used, const float* signals, Range heard,
                       float* products, float* halves, float* out) {
    used = s.part(used), heard = s.part_of_signal(heard);
    for (int64_t p = 0; p < s.parts(); p++)
        correlate_and_add_directly<SUMMED>(taps + p * s.F * s.taps_row(), s.taps_row(), s.F, used,
                                           signals + p * s.F * s.signal_row(), s.signal_row(), heard, 0,
                                           s.out_row(), products + p * s.out_row());
    join(s, products, s.out_row(), halves, out);
}

}  // namespace
