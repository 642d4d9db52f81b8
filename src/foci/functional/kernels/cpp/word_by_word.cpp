// Word-by-word attention, all steps of the batch in one call: forward and backward.
//
//     a_t = q_t + W r_{t−1}        α_t = softmax_j(vᵀ tanh(a_t + k_j))        r_t = Σ_j α_tj y_j + tanh(C r_{t−1})
//
// A step that does not exist (padding) has weights 0 and leaves r as it is; positions that are not valid have weight 0.
// A block of rows of the batch is one task: at every step they share one product with W and C, and their keys are
// prepared once for all steps (additive_entries.h). The backward gets what the forward kept (a, r before and tanh(C r) of
// every step) and gives the gradients of a, of C r and of r at every step; the gradients of W, C and y are matrix
// products of these, which the caller computes.
//
// Plain C interface, float32, all tensors contiguous. Results do not depend on the number of threads.

#include <algorithm>
#include <cstdint>

#include "additive_entries.h"
#include "products.h"
#include "scratch.h"
#include "softmax_positions.h"
#include "threads.h"

namespace {

constexpr int64_t BLOCK = 8;         // rows of the batch that are one task, at most
constexpr int64_t CACHED = 3 << 18;  // bytes of the second-level cache that a block's keys and values may fill

struct Sizes {
    int64_t B, R, S, D;  // batch, steps, positions, size of a vector
    int64_t P() const { return padded(D); }
    // Positions as whole vectors, and as whole tiles.
    int64_t positions() const { return round_up<CACHE_LINE>(S); }
    int64_t tiled() const { return round_up<TILE>(S); }

    // Rows of the batch that are one task, where each keeps this many floats: no more than give each thread some.
    int64_t block(int64_t kept, int threads) const {
        const int64_t fit = CACHED / std::max<int64_t>(1, kept * sizeof(float));
        int64_t rows = BLOCK;
        while (rows > 1 && (rows > fit || rows * threads > B)) rows /= 2;
        return rows;
    }
};

// Copies rows of D numbers to rows of P, the rest of each filled with zeros.
void pad_rows(const float* from, int64_t rows, const Sizes& s, float* to, int64_t stride) {
    for (int64_t i = 0; i < rows; i++) {
        std::copy_n(from + i * s.D, s.D, to + i * stride);
        std::fill_n(to + i * stride + s.D, s.P() - s.D, 0.0f);
    }
}

// The columns of a matrix (D, D) as rows of P.
void turn(const float* from, const Sizes& s, float* to, int64_t stride) {
    for (int64_t a = 0; a < s.D; a++) std::fill_n(to + a * stride, s.P(), 0.0f);
    for (int64_t i = 0; i < s.D; i += CACHE_LINE)  // by squares, whose lines stay in the cache
        for (int64_t a = 0; a < s.D; a += CACHE_LINE)
            for (int64_t y = i; y < std::min(i + CACHE_LINE, s.D); y++)
                for (int64_t x = a; x < std::min(a + CACHE_LINE, s.D); x++) to[x * stride + y] = from[y * s.D + x];
}

void tanh_of(const float* x, int64_t P, float* to) {
    for (int64_t a = 0; a < P; a += LANES)
        store(to + a, all(1.0f) - all(2.0f) * exact_reciprocal(load(x + a), Vector{}));
}

// Rows of the scratch in tiles (additive_entries.h): the entries of a step then read memory from one end to the other.
template <typename Real>
Layout<Real> tile(Real* rows, int64_t first, const Sizes& s) {
    return {rows + first * s.P(), LANES, TILE};
}

// Spreads P numbers over a tile, as its row j.
void store_row(const float* from, const Sizes& s, float* tiles, int64_t j) {
    const KeyGrads to = tile(tiles, j / TILE * TILE, s);
    for (int64_t a = 0; a < s.P(); a += LANES) store(to(j % TILE, a), load(from + a));
}

// Copies rows of D numbers into tiles, or their prepared rows; the rest is zeros. `row` is scratch. Returns whether a
// prepared row is wild.
template <bool prepared>
bool copy_to_tiles(const float* from, const Sizes& s, float* tiles, float* row) {
    bool wild = false;
    std::fill_n(row, s.P(), 0.0f);
    for (int64_t j = 0; j < s.tiled(); j++) {
        if (j >= s.S)
            std::fill_n(row, s.P(), 0.0f);
        else if constexpr (prepared)
            wild |= prepare(from + j * s.D, s.D, row, s.P());
        else
            std::copy_n(from + j * s.D, s.D, row);
        store_row(row, s, tiles, j);
    }
    return wild;
}

// Fetches rows of the next step, of the tensors that there are: those of a block lie too far apart to be foreseen.
template <bool written, typename... Tensors>
void fetch(int64_t first, int64_t count, const Tensors*... tensors) {
    for (const float* at : {static_cast<const float*>(tensors)...})
        for (int64_t a = 0; at && a < count + CACHE_LINE; a += CACHE_LINE) __builtin_prefetch(at + first + a, written);
}

bool any_exists(const uint8_t* exists, int64_t rows, int64_t R, int64_t t) {
    for (int64_t i = 0; i < rows; i++)
        if (exists[i * R + t]) return true;
    return false;
}

// --- forward

struct ForwardArguments {
    const float *query, *value, *key;
    const uint8_t *exists, *valid;
    const float* start;
    float *memories, *asked, *carried;  // may be null: only the backward needs them
    float *last, *found;
};

struct ForwardWeights {
    const float *vector, *both;  // P numbers; the columns of W and of C side by side: D rows of 2·P
    double sum_v;
    static int64_t size(const Sizes& s) { return s.P() + 2 * s.D * s.P(); }
};

struct ForwardBlock {
    float *keys, *values, *allowed, *memory, *products, *query, *scores;
    int64_t size;

    static int64_t kept(const Sizes& s) { return 2 * s.tiled() * s.P(); }

    ForwardBlock(float* at, int64_t rows, const Sizes& s) {
        Pieces pieces{at};
        keys = pieces.take(rows * s.tiled() * s.P());
        values = pieces.take(rows * s.S * s.P());
        allowed = pieces.take(rows * s.positions());
        memory = pieces.take(rows * s.P());
        products = pieces.take(rows * 2 * s.P());
        query = pieces.take(s.P());
        scores = pieces.take(s.positions());
        size = pieces.total;
    }
};

// A step of one row: the products a and C r become the weights and the next memory.
void forward_step(const float* key, bool wild_keys, const ForwardWeights& weights, const Sizes& s, int64_t i,
                  const ForwardBlock& at) {
    const int64_t P = s.P();
    const float *asked = at.products + i * 2 * P, *keys = at.keys + i * s.tiled() * P;
    float* memory = at.memory + i * P;
    if (prepare(asked, s.D, at.query, P) || wild_keys)
        for (int64_t j = 0; j < s.S; j++) at.scores[j] = exact_score(asked, key + j * s.D, weights.vector, s.D);
    else
        for (int64_t j = 0; j < s.S; j += TILE)
            score_tile<TILE>(at.query, tile(keys, j, s), weights.vector, P, at.scores + j);
    const float sum_v = static_cast<float>(weights.sum_v);
    for (int64_t j = 0; j < s.positions(); j += LANES) store(at.scores + j, all(sum_v) - all(2.0f) * load(at.scores + j));
    weigh(at.scores, at.allowed + i * s.positions(), s.positions());
    tanh_of(asked + P, P, memory);
}

void forward_block(const ForwardArguments& given, const ForwardWeights& weights, int64_t rows, const Sizes& s,
                   const ForwardBlock& at) {
    const int64_t P = s.P(), D = s.D, R = s.R, S = s.S, positions = s.positions();
    bool wild[BLOCK];
    std::fill_n(at.scores, positions, 0.0f);
    for (int64_t i = 0; i < rows; i++) {
        wild[i] = copy_to_tiles<true>(given.key + i * S * D, s, at.keys + i * s.tiled() * P, at.query);
        pad_rows(given.value + i * S * D, S, s, at.values + i * S * P, P);
        for (int64_t j = 0; j < positions; j++) at.allowed[i * positions + j] = j < S && given.valid[i * S + j] ? 1.0f : 0.0f;
        pad_rows(given.start + i * D, 1, s, at.memory + i * P, P);
    }
    for (int64_t t = 0; t < R; t++) {
        if (any_exists(given.exists, rows, R, t)) {
            for (int64_t i = 0; i < rows; i++) {
                pad_rows(given.query + (i * R + t) * D, 1, s, at.products + i * 2 * P, P);
                std::fill_n(at.products + i * 2 * P + P, P, 0.0f);
            }
            multiply(at.memory, rows, P, weights.both, 2 * P, D, 2 * P, at.products, 2 * P);
        }
        for (int64_t i = 0; i < rows; i++) {
            const int64_t n = i * R + t;
            const bool exists = given.exists[n];
            float *memory = at.memory + i * P, *weight = given.found + n * S;
            fetch<false>((n + 1) * D, D, given.query);
            fetch<true>((n + 1) * D, D, given.memories, given.asked, given.carried);
            fetch<true>((n + 1) * S, S, given.found);
            if (given.memories) std::copy_n(memory, D, given.memories + n * D);
            if (!exists) {
                std::fill_n(weight, S, 0.0f);
                if (given.asked) std::fill_n(given.asked + n * D, D, 0.0f);
                if (given.carried) std::fill_n(given.carried + n * D, D, 0.0f);
                continue;
            }
            forward_step(given.key + i * S * D, wild[i], weights, s, i, at);
            std::copy_n(at.scores, S, weight);
            if (given.asked) std::copy_n(at.products + i * 2 * P, D, given.asked + n * D);
            if (given.carried) std::copy_n(memory, D, given.carried + n * D);
            multiply(at.scores, 1, positions, at.values + i * S * P, P, S, P, memory, P);
        }
    }
    for (int64_t i = 0; i < rows; i++) std::copy_n(at.memory + i * P, D, given.last + i * D);
}

// --- backward

struct BackwardArguments {
    const float *weights_grad, *last_grad;  // weights_grad may be null
    const uint8_t* exists;
    const float *value, *key, *asked, *carried, *found;
    float *query_grad, *carried_grad, *memory_grad, *start_grad, *key_grad, *vector_grad;
};

struct BackwardWeights {
    const float *vector, *to_score, *carry;  // P numbers, and D rows of P
    static int64_t size(const Sizes& s) { return s.P() + 2 * s.D * s.P(); }
};

struct BackwardBlock {
    float *keys, *key_grads, *values, *raw_keys, *grad, *next, *stepped, *vector_grad, *query, *raw_query, *scores, *entries;
    int64_t size;

    static int64_t kept(const Sizes& s) { return 3 * s.tiled() * s.P(); }

    BackwardBlock(float* at, int64_t rows, const Sizes& s) {
        Pieces pieces{at};
        const int64_t rows_tiled = rows * s.tiled() * s.P();
        keys = pieces.take(rows_tiled);
        key_grads = pieces.take(rows_tiled);
        values = pieces.take(rows_tiled);
        raw_keys = pieces.take(s.tiled() * s.P());
        grad = pieces.take(rows * s.P());
        next = pieces.take(rows * s.P());
        stepped = pieces.take(rows * 2 * s.P());
        vector_grad = pieces.take(rows * s.P());
        query = pieces.take(s.P());
        raw_query = pieces.take(s.P());
        entries = pieces.take(s.P());
        scores = pieces.take(s.positions());
        size = pieces.total;
    }
};

// The gradients of the scores in at.scores, from those of the weights and of the memory.
void score_gradients(const float* weights_grad, const float* weight, const float* grad, const float* values,
                     const Sizes& s, float* scores) {
    for (int64_t j = 0; j < s.S; j += TILE) {
        const Keys y = tile(values, j, s);
        Vector sums[TILE];
        for (auto& sum : sums) sum = Vector{};
        for (int64_t a = 0; a < s.P(); a += LANES)
            for (int i = 0; i < TILE; i++) sums[i] += load(grad + a) * load(y(i, a));
        sum_each(sums, scores + j);
    }
    softmax_gradients(weights_grad, scores, weight, nullptr, 1.0f, s.S, scores);
}

// A step of one row: the gradients of a and of C r, side by side in at.stepped.
void backward_step(const BackwardArguments& given, bool wild_keys, const BackwardWeights& weights, const Sizes& s,
                   int64_t i, int64_t t, const BackwardBlock& at) {
    const int64_t P = s.P(), D = s.D, S = s.S, n = i * s.R + t, first = i * s.tiled();
    const float* grad = at.grad + i * P;
    float* vector_grad = at.vector_grad + i * P;
    score_gradients(after(given.weights_grad, n * S), given.found + n * S, grad, at.values + first * P, s, at.scores);
    pad_rows(given.asked + n * D, 1, s, at.raw_query, P);
    std::fill_n(at.entries, P, 0.0f);
    const bool exact = prepare(at.raw_query, D, at.query, P) || wild_keys;
    if (exact) copy_to_tiles<false>(given.key + i * S * D, s, at.raw_keys, at.query);
    for (int64_t j = 0; j < S; j += TILE) {
        const KeyGrads dk = tile(at.key_grads, first + j, s);
        if (!any_gradient<1, TILE>(at.scores + j, S)) continue;
        if (exact)
            gradient_tile<1, TILE, true>(at.scores + j, S, at.raw_query, tile<const float>(at.raw_keys, j, s), P, P,
                                         at.entries, dk, vector_grad);
        else
            gradient_tile<1, TILE, false>(at.scores + j, S, at.query, tile<const float>(at.keys, first + j, s), P, P,
                                          at.entries, dk, vector_grad);
    }
    float *query_grad = at.stepped + i * 2 * P, *carried_grad = query_grad + P;
    const float* carried = given.carried + n * D;
    for (int64_t a = 0; a < D; a++) {
        query_grad[a] = 4 * weights.vector[a] * at.entries[a];
        carried_grad[a] = grad[a] * (1 - carried[a] * carried[a]);
    }
}

void backward_block(const BackwardArguments& given, const BackwardWeights& weights, int64_t rows, const Sizes& s,
                    const BackwardBlock& at) {
    const int64_t P = s.P(), D = s.D, R = s.R, S = s.S, tiled = s.tiled();
    bool wild[BLOCK];
    for (int64_t i = 0; i < rows; i++) {
        wild[i] = copy_to_tiles<true>(given.key + i * S * D, s, at.keys + i * tiled * P, at.query);
        copy_to_tiles<false>(given.value + i * S * D, s, at.values + i * tiled * P, at.query);
        pad_rows(given.last_grad + i * D, 1, s, at.grad + i * P, P);
    }
    std::fill_n(at.key_grads, rows * tiled * P, 0.0f);
    std::fill_n(at.vector_grad, rows * P, 0.0f);
    std::fill_n(at.scores, s.positions(), 0.0f);
    std::fill_n(at.stepped, rows * 2 * P, 0.0f);
    for (int64_t t = R - 1; t >= 0; t--) {
        const bool any = any_exists(given.exists, rows, R, t);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t n = i * R + t;
            const float* stepped = at.stepped + i * 2 * P;
            fetch<false>((n - 1) * D, D, given.asked, given.carried);
            fetch<false>((n - 1) * S, S, given.found, given.weights_grad);
            fetch<true>((n - 1) * D, D, given.memory_grad, given.query_grad, given.carried_grad);
            if (given.exists[n]) {
                std::copy_n(at.grad + i * P, D, given.memory_grad + n * D);
                backward_step(given, wild[i], weights, s, i, t, at);
                std::copy_n(stepped, D, given.query_grad + n * D);
                std::copy_n(stepped + P, D, given.carried_grad + n * D);
            } else {
                for (float* zeros : {given.memory_grad, given.query_grad, given.carried_grad})
                    std::fill_n(zeros + n * D, D, 0.0f);
            }
        }
        if (!any) continue;
        std::fill_n(at.next, rows * P, 0.0f);
        multiply(at.stepped, rows, 2 * P, weights.to_score, P, D, P, at.next, P);
        multiply(at.stepped + P, rows, 2 * P, weights.carry, P, D, P, at.next, P);
        for (int64_t i = 0; i < rows; i++)
            if (given.exists[i * R + t]) std::copy_n(at.next + i * P, P, at.grad + i * P);
    }
    for (int64_t i = 0; i < rows; i++) {
        std::copy_n(at.grad + i * P, D, given.start_grad + i * D);
        for (int64_t a = 0; a < D; a++) given.vector_grad[i * D + a] = -2 * at.vector_grad[i * P + a];
        for (int64_t j = 0; j < S; j++)
            for (int64_t a = 0; a < D; a += LANES)
                store_some(given.key_grad + (i * S + j) * D + a,
                           all(4.0f) * load(weights.vector + a) *
                               load(tile(at.key_grads, i * tiled + j / TILE * TILE, s)(j % TILE, a)),
                           D - a);
    }
}

}  // namespace

extern "C" {

// Floats of scratch that both need.
int64_t foci_word_by_word_scratch(int64_t B, int64_t S, int64_t D, int threads) {
    const Sizes s{B, 0, S, D};
    const int64_t forward = ForwardBlock(nullptr, s.block(ForwardBlock::kept(s), threads), s).size;
    const int64_t backward = BackwardBlock(nullptr, s.block(BackwardBlock::kept(s), threads), s).size;
    return ForwardWeights::size(s) + threads * std::max(forward, backward);
}

// memory (B, D), query (B, R, D), exists (B, R), value and key (B, S, D), valid (B, S), vector (D), to_score and carry
// (D, D); memories (r before each step), asked (a) and carried (tanh(C r)) (B, R, D), which may be null;
// last (B, D), weights (B, R, S).
void foci_word_by_word_forward(const float* memory, const float* query, const uint8_t* exists, const float* value,
                               const float* key, const uint8_t* valid, const float* vector, const float* to_score,
                               const float* carry, int64_t B, int64_t R, int64_t S, int64_t D, float* scratch,
                               float* memories, float* asked, float* carried, float* last, float* weights,
                               int threads) {
    const Sizes s{B, R, S, D};
    float *padded_vector = scratch, *both = scratch + s.P();
    pad_rows(vector, 1, s, padded_vector, s.P());
    turn(to_score, s, both, 2 * s.P());
    turn(carry, s, both + s.P(), 2 * s.P());
    double sum_v = 0;
    for (int64_t a = 0; a < D; a++) sum_v += vector[a];
    const ForwardWeights shared{padded_vector, both, sum_v};
    const int64_t block = s.block(ForwardBlock::kept(s), threads), size = ForwardBlock(nullptr, block, s).size;
    float* blocks = scratch + ForwardWeights::size(s);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b += block) {
        const int64_t n = b * R * D;
        const ForwardArguments given{query + n, value + b * S * D, key + b * S * D, exists + b * R, valid + b * S,
                                     memory + b * D, after(memories, n), after(asked, n), after(carried, n),
                                     last + b * D, weights + b * R * S};
        forward_block(given, shared, std::min(block, B - b), s, ForwardBlock(blocks + this_thread() * size, block, s));
    }
}

// The gradients query_grad, carried_grad (of C r) and memory_grads (of r after each step) (B, R, D), start_grad (B, D),
// key_grad (B, S, D) and, for each row of the batch, vector_grads (B, D). weights_grad may be null.
void foci_word_by_word_backward(const float* weights_grad, const float* last_grad, const uint8_t* exists,
                                const float* value, const float* key, const float* vector, const float* to_score,
                                const float* carry, const float* asked, const float* carried, const float* weights,
                                int64_t B, int64_t R, int64_t S, int64_t D, float* scratch, float* query_grad,
                                float* carried_grad, float* memory_grads, float* start_grad, float* key_grad,
                                float* vector_grads, int threads) {
    const Sizes s{B, R, S, D};
    float *padded_vector = scratch, *w = scratch + s.P(), *c = w + D * s.P();
    pad_rows(vector, 1, s, padded_vector, s.P());
    pad_rows(to_score, D, s, w, s.P());
    pad_rows(carry, D, s, c, s.P());
    const BackwardWeights shared{padded_vector, w, c};
    const int64_t block = s.block(BackwardBlock::kept(s), threads), size = BackwardBlock(nullptr, block, s).size;
    float* blocks = scratch + BackwardWeights::size(s);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < B; b += block) {
        const int64_t n = b * R * D;
        const BackwardArguments given{after(weights_grad, b * R * S), last_grad + b * D, exists + b * R,
                                      value + b * S * D, key + b * S * D, asked + n, carried + n,
                                      weights + b * R * S, query_grad + n, carried_grad + n, memory_grads + n,
                                      start_grad + b * D, key_grad + b * S * D, vector_grads + b * D};
        backward_block(given, shared, std::min(block, B - b), s, BackwardBlock(blocks + this_thread() * size, block, s));
    }
}

}  // extern "C"
