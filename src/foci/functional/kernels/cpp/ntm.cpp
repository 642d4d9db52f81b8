// One step of a Neural Turing Machine's memory, all heads at once: write, then read; forward and backward.
//
//     c(i)  = softmax_i(β cos(k, M(i)))        v = g c + (1 − g) p        u(i) = Σ_j v(i − j mod N) s(j)
//     w(i)  = softmax_i(γ log u(i))            over the slots with u > 0; the others stay empty
//     M'(i) = M(i) Π_h (1 − w_h(i) e_h) + Σ_h w_h(i) a_h,    r_h = Σ_i w_h(i) M'(i)
//
// Writing heads address the content of M, reading heads that of M'. A row of `commands` is the output of the linear
// layer, before tanh, softmax, softplus and sigmoid: for each writing head, then each reading head, key (M), kernel (S),
// strength, gate and gamma; then for each writing head erase and add (M each).
//
// A row of the batch is one task. Its memory is transposed to M×P, P the slots padded to whole vectors, so that every
// loop runs along the slots; the padding is zero. The backward uses only the results of the forward: weights are
// given, and intermediate values are computed again. Plain C interface, float32 and float64; all tensors contiguous.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#define VECTOR_BYTES 32
#include "threads.h"
#include "vectors.h"

namespace {

template <typename Real>
struct Kind;

template <>
struct Kind<float> {
    using Integer = int32_t;
    static constexpr int32_t MANTISSA = 23, BIAS = 127, MANTISSA_BITS = 0x007fffff;
    static constexpr int32_t ONE = 0x3f800000, ROOT_HALF = 0x3f3504f3;
    static constexpr float ROUND = 0x1.8p23f;  // adding it rounds to a whole number, kept in the low bits
    static constexpr float DEEPEST = -87;      // e^x is a normal number down to here
    static constexpr float NORMAL = 0x1p-126f, LIFT = 0x1p23f;
    static constexpr float LN2_HIGH = 0x1.62e300p-1f, LN2_LOW = 0x1.2fefa2p-17f;
    static constexpr int EXP_DEGREE = 7, LOG_TERMS = 4;
    static constexpr float LOG[LOG_TERMS] = {0xaaaaaa.0p-24f, 0xccce13.0p-25f, 0x91e9ee.0p-25f, 0xf89e26.0p-26f};
};

template <>
struct Kind<double> {
    using Integer = int64_t;
    static constexpr int64_t MANTISSA = 52, BIAS = 1023, MANTISSA_BITS = 0x000fffffffffffff;
    static constexpr int64_t ONE = 0x3ff0000000000000, ROOT_HALF = 0x3fe6a09e667f3bcd;
    static constexpr double ROUND = 0x1.8p52;
    static constexpr double DEEPEST = -708;
    static constexpr double NORMAL = 0x1p-1022, LIFT = 0x1p52;
    static constexpr double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;
    static constexpr int EXP_DEGREE = 13, LOG_TERMS = 7;
    static constexpr double LOG[LOG_TERMS] = {0x1.5555555555593p-1, 0x1.999999997fa04p-2, 0x1.2492494229359p-2,
                                              0x1.c71c51d8e78afp-3, 0x1.7466496cb03dep-3, 0x1.39a09d078c69fp-3,
                                              0x1.2f112df3e5244p-3};
};

template <typename Real>
using Integers = VectorOf<typename Kind<Real>::Integer>;

template <typename Real>
constexpr Real NEVER = -std::numeric_limits<Real>::infinity();

template <typename Real>
constexpr Real SHORTEST = Real(1e-4);  // the square of the length that a shorter key or slot counts as

// e^x to about one unit in the last place, for x ≤ 0; 0 where it would not be a normal number, NaN for NaN.
template <typename Real>
VectorOf<Real> exponential(VectorOf<Real> x) {
    using K = Kind<Real>;
    const VectorOf<Real> shift = all(K::ROUND + K::BIAS);
    const VectorOf<Real> shifted = x * all(Real(0x1.71547652b82fep0)) + shift;
    const VectorOf<Real> n = shifted - shift;
    const VectorOf<Real> f = (x - n * all(K::LN2_HIGH)) - n * all(K::LN2_LOW);
    Real inverse_factorial[K::EXP_DEGREE + 1] = {1};
    for (int k = 1; k <= K::EXP_DEGREE; k++) inverse_factorial[k] = inverse_factorial[k - 1] / k;
    VectorOf<Real> p = all(inverse_factorial[K::EXP_DEGREE]);
    for (int k = K::EXP_DEGREE - 1; k >= 0; k--) p = p * f + all(inverse_factorial[k]);
    const VectorOf<Real> result = p * (VectorOf<Real>)((Integers<Real>)shifted << K::MANTISSA);
    return x < all(K::DEEPEST) ? VectorOf<Real>{} : result;
}

// log x to about one unit in the last place, for x > 0, subnormal numbers and infinity among them.
template <typename Real>
VectorOf<Real> logarithm(VectorOf<Real> x) {
    using K = Kind<Real>;
    const Integers<Real> tiny = x < all(K::NORMAL), root = Integers<Real>{} + K::ROOT_HALF;
    // x = 2^n·(1 + f), with 1 + f between √½ and √2
    const Integers<Real> bits = (Integers<Real>)(tiny ? x * all(K::LIFT) : x) + (K::ONE - K::ROOT_HALF);
    const Integers<Real> exponent = (bits >> K::MANTISSA) - K::BIAS;
    const VectorOf<Real> n = __builtin_convertvector(exponent, VectorOf<Real>) - (tiny ? all(Real(K::MANTISSA)) : VectorOf<Real>{});
    const VectorOf<Real> f = (VectorOf<Real>)((bits & K::MANTISSA_BITS) + root) - all(Real(1));
    // log(1 + f) = f − f²/2 + s·(f²/2 + R(s²)), s = f / (2 + f), as fdlibm has it
    const VectorOf<Real> s = f / (all(Real(2)) + f), half = all(Real(0.5)) * f * f, z = s * s;
    VectorOf<Real> p = all(K::LOG[K::LOG_TERMS - 1]);
    for (int k = K::LOG_TERMS - 2; k >= 0; k--) p = p * z + all(K::LOG[k]);
    const VectorOf<Real> result = ((s * (half + z * p) + n * all(K::LN2_LOW)) - half) + f + n * all(K::LN2_HIGH);
    return x > all(std::numeric_limits<Real>::max()) ? x : result;
}

template <typename Real>
Real sigmoid(Real x) {
    return 1 / (1 + std::exp(-x));
}

template <typename Real>
Real softplus(Real x) {
    return x > 20 ? x : std::log1p(std::exp(x));  // beyond 20 torch's is x, too
}

// --- rows of P numbers, P a multiple of a vector's lanes

template <typename Real>
Real dot(const Real* x, const Real* y, int64_t P) {
    VectorOf<Real> even{}, odd{};
    int64_t i = 0;
    for (; i + 2 * LANES_OF<Real> <= P; i += 2 * LANES_OF<Real>) {
        even += load(x + i) * load(y + i);
        odd += load(x + i + LANES_OF<Real>) * load(y + i + LANES_OF<Real>);
    }
    if (i < P) even += load(x + i) * load(y + i);
    return sum_lanes<Real>(even + odd);
}

template <typename Real>
Real largest(const Real* x, int64_t P) {
    VectorOf<Real> top = all(NEVER<Real>);
    for (int64_t i = 0; i < P; i += LANES_OF<Real>) {
        const VectorOf<Real> here = load(x + i);
        top = here > top ? here : top;
    }
    Real most = top[0];
    for (int64_t l = 1; l < LANES_OF<Real>; l++) most = std::max(most, Real(top[l]));
    return most;
}

// The softmax of N numbers, in place; the padding becomes 0.
template <typename Real>
void softmax(Real* x, int64_t N, int64_t P) {
    std::fill(x + N, x + P, NEVER<Real>);
    const VectorOf<Real> top = all(largest(x, P));
    VectorOf<Real> sums{};
    for (int64_t i = 0; i < P; i += LANES_OF<Real>) {
        const VectorOf<Real> share = exponential<Real>(load(x + i) - top);
        sums += share;
        store(x + i, share);
    }
    const VectorOf<Real> scale = all(1 / sum_lanes<Real>(sums));
    for (int64_t i = 0; i < P; i += LANES_OF<Real>) store<Real>(x + i, load(x + i) * scale);
    std::fill(x + N, x + P, Real(0));
}

template <typename Real>
void scaled_add(Real scale, const Real* from, int64_t P, Real* to) {
    const VectorOf<Real> by = all(scale);
    for (int64_t i = 0; i < P; i += LANES_OF<Real>) store<Real>(to + i, load(to + i) + by * load(from + i));
}

// to[i] += Σ_m vector[m]·memory[m][i], four vectors at a time: their sums stay in registers.
template <typename Real>
void combine(const Real* vector, const Real* memory, int64_t M, int64_t P, Real* to) {
    constexpr int64_t L = LANES_OF<Real>;
    int64_t i = 0;
    for (; i + 4 * L <= P; i += 4 * L) {
        VectorOf<Real> a = load(to + i), b = load(to + i + L), c = load(to + i + 2 * L), d = load(to + i + 3 * L);
        for (int64_t m = 0; m < M; m++) {
            const VectorOf<Real> by = all(vector[m]);
            const Real* row = memory + m * P + i;
            a += by * load(row), b += by * load(row + L), c += by * load(row + 2 * L), d += by * load(row + 3 * L);
        }
        store<Real>(to + i, a), store<Real>(to + i + L, b), store<Real>(to + i + 2 * L, c), store<Real>(to + i + 3 * L, d);
    }
    for (; i < P; i += L) {
        VectorOf<Real> sum = load(to + i);
        for (int64_t m = 0; m < M; m++) sum += all(vector[m]) * load(memory + m * P + i);
        store<Real>(to + i, sum);
    }
}

template <typename Real>
void copy_padded(const Real* from, int64_t N, int64_t P, Real* to) {
    std::copy_n(from, N, to);
    std::fill(to + N, to + P, Real(0));
}

// --- sizes and scratch

struct Sizes {
    int64_t N, M, R, W, S;  // slots, their size, reading heads, writing heads, width of the shift
    int64_t place() const { return M + S + 3; }
    int64_t commands() const { return (W + R) * place() + 2 * W * M; }
};

template <typename Real>
int64_t padded(int64_t N) {
    // An odd number of vectors: rows a power of two apart would map to the same lines of the cache.
    return ((N + LANES_OF<Real> - 1) / LANES_OF<Real> | 1) * LANES_OF<Real>;
}

// The commands of one head, after tanh, softmax, softplus and sigmoid.
template <typename Real>
struct Head {
    const Real* raw;
    Real *key, *kernel;
    Real strength, gate, gamma;
    Real inverse, slope;  // of the key's length; see `measure`
};

// The scratch memory of one thread, in one allocation.
template <typename Real>
struct Scratch {
    int64_t P;
    Real *before, *after, *gradient;        // M×P: both memories, and a memory's gradient
    Real *inverse, *slope, *turned;         // of a memory's slots; see `measure`
    Real *cosine, *content, *previous, *moved, *logs;  // P: intermediate values of a head's weights
    Real* mixed;                            // 2P: the head's mixed weights twice in a row, to be read in a circle
    Real *circle, *grad, *spare, *kept;     // 2P, P, P, P: for gradients
    Real *write_weights, *write_grads, *ahead;  // W×P
    Real *erase, *add;                      // W×M: what the writing heads write
    Real *key, *kernel;                     // M, S
    int64_t size;

    Scratch(Real* base, const Sizes& sizes) : P(padded<Real>(sizes.N)), size(0) {
        const auto take = [&](int64_t count) {
            Real* place = base ? base + size : nullptr;
            size += count;
            return place;
        };
        const int64_t M = sizes.M, W = sizes.W;
        for (Real** memory : {&before, &after, &gradient}) *memory = take(M * P);
        for (Real** row : {&inverse, &slope, &turned, &cosine, &content, &previous, &moved, &logs, &grad, &spare, &kept}) *row = take(P);
        for (Real** twice : {&mixed, &circle}) *twice = take(2 * P);
        for (Real** rows : {&write_weights, &write_grads, &ahead}) *rows = take(W * P);
        for (Real** vectors : {&erase, &add}) *vectors = take(W * M);
        key = take(M);
        kernel = take(sizes.S);
    }
};

// (N, M) to (M, P) and back; some slots at a time, which stay in the nearest cache.
template <typename Real>
void turn(const Real* __restrict from, const Sizes& sizes, int64_t P, Real* __restrict to) {
    const int64_t N = sizes.N, M = sizes.M;
    for (int64_t first = 0; first < N; first += 64)
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = first; n < std::min(N, first + 64); n++) to[m * P + n] = from[n * M + m];
    for (int64_t m = 0; m < M; m++) std::fill(to + m * P + N, to + (m + 1) * P, Real(0));
}

template <typename Real>
void turn_back(const Real* __restrict from, const Sizes& sizes, int64_t P, Real* __restrict to) {
    const int64_t N = sizes.N, M = sizes.M;
    for (int64_t n = 0; n < N; n++)
        for (int64_t m = 0; m < M; m++) to[n * M + m] = from[m * P + n];
}

// 1 / length of every slot, and its slope: −∂(1 / length)/∂(length²)·2·length is the square of the inverse, and 0 for a
// slot so short that it counts as SHORTEST.
template <typename Real>
void measure(const Real* memory, int64_t M, int64_t P, Real* inverse, Real* slope) {
    const VectorOf<Real> shortest = all(SHORTEST<Real>), one = all(Real(1));
    for (int64_t i = 0; i < P; i += LANES_OF<Real>) {
        VectorOf<Real> square{};
        for (int64_t m = 0; m < M; m++) square += load(memory + m * P + i) * load(memory + m * P + i);
        const VectorOf<Real> over = one / (square < shortest ? shortest : square);
        store<Real>(slope + i, square < shortest ? VectorOf<Real>{} : over);
        for (int64_t l = 0; l < LANES_OF<Real>; l++) inverse[i + l] = std::sqrt(over[l]);
    }
}

// --- one head

template <typename Real>
Head<Real> read_commands(const Real* raw, const Sizes& sizes, const Scratch<Real>& s) {
    const int64_t M = sizes.M, S = sizes.S;
    Head<Real> head{raw, s.key, s.kernel, 0, 0, 0, 0, 0};
    Real square = 0;
    for (int64_t m = 0; m < M; m++) {
        head.key[m] = std::tanh(raw[m]);
        square += head.key[m] * head.key[m];
    }
    head.inverse = 1 / std::sqrt(square < SHORTEST<Real> ? SHORTEST<Real> : square);
    head.slope = square < SHORTEST<Real> ? Real(0) : 1 / square;
    const Real top = *std::max_element(raw + M, raw + M + S);
    Real sum = 0;
    for (int64_t j = 0; j < S; j++) sum += head.kernel[j] = std::exp(raw[M + j] - top);
    for (int64_t j = 0; j < S; j++) head.kernel[j] /= sum;
    head.strength = softplus(raw[M + S]);
    head.gate = sigmoid(raw[M + S + 1]);
    head.gamma = 1 + softplus(raw[M + S + 2]);
    return head;
}

// The number of slots, 0..N−1, that kernel[j] moves on by.
int64_t move_of(int64_t j, const Sizes& sizes) {
    const int64_t move = (j - sizes.S / 2) % sizes.N;
    return move < 0 ? move + sizes.N : move;
}

// Twice in a row, so that a circle is read from any start; 0 up to 2P.
template <typename Real>
void close_circle(Real* row, int64_t N, int64_t P) {
    std::copy_n(row, N, row + N);
    std::fill(row + 2 * N, row + 2 * P, Real(0));
}

// Content, mixture and shift: up to the weights before they are sharpened, and their logarithms (0 where empty).
template <typename Real>
void find(const Head<Real>& head, const Real* memory, const Real* previous, const Sizes& sizes, const Scratch<Real>& s) {
    constexpr int64_t L = LANES_OF<Real>;
    const int64_t N = sizes.N, P = s.P;
    const VectorOf<Real> strength = all(head.strength), inverse = all(head.inverse);
    std::fill_n(s.cosine, P, Real(0));
    combine(head.key, memory, sizes.M, P, s.cosine);
    for (int64_t i = 0; i < P; i += L) {
        const VectorOf<Real> cosine = load(s.cosine + i) * (load(s.inverse + i) * inverse);
        store<Real>(s.cosine + i, cosine);
        store<Real>(s.content + i, strength * cosine);
    }
    softmax(s.content, N, P);
    const VectorOf<Real> gate = all(head.gate), stay = all(1 - head.gate);
    copy_padded(previous, N, P, s.previous);
    for (int64_t i = 0; i < P; i += L)
        store<Real>(s.mixed + i, gate * load(s.content + i) + stay * load(s.previous + i));
    close_circle(s.mixed, N, P);
    std::fill_n(s.moved, P, Real(0));
    for (int64_t j = 0; j < sizes.S; j++) scaled_add(head.kernel[j], s.mixed + N - move_of(j, sizes), P, s.moved);
    std::fill(s.moved + N, s.moved + P, Real(0));
    for (int64_t i = 0; i < P; i += L) {
        const VectorOf<Real> share = load(s.moved + i);
        store<Real>(s.logs + i, logarithm<Real>(share > VectorOf<Real>{} ? share : all(Real(1))));
    }
}

template <typename Real>
void sharpen(Real gamma, const Scratch<Real>& s, int64_t N, Real* weights) {
    if (!(largest(s.moved, s.P) > 0)) {  // all slots are empty
        std::fill_n(weights, s.P, Real(0));
        return;
    }
    for (int64_t i = 0; i < s.P; i += LANES_OF<Real>) {
        const VectorOf<Real> power = all(gamma) * load(s.logs + i);
        store<Real>(weights + i, load(s.moved + i) > VectorOf<Real>{} ? power : all(NEVER<Real>));
    }
    softmax(weights, N, s.P);
}

// Sets the gradients of a head's commands and previous weights, and adds to s.gradient, the memory's, and to s.turned,
// which `spread_turns` uses. s.grad holds the gradient of the head's weights; the results of `find` are in s.
template <typename Real>
void find_backward(const Head<Real>& head, const Real* memory, const Real* weights, const Sizes& sizes,
                   const Scratch<Real>& s, Real* commands_grad, Real* previous_grad) {
    constexpr int64_t L = LANES_OF<Real>;
    const int64_t N = sizes.N, M = sizes.M, S = sizes.S, P = s.P;
    // sharpening
    const VectorOf<Real> mean = all(dot(weights, s.grad, P)), gamma = all(head.gamma);
    VectorOf<Real> gamma_sums{};
    for (int64_t i = 0; i < P; i += L) {
        const VectorOf<Real> power_grad = load(weights + i) * (load(s.grad + i) - mean), share = load(s.moved + i);
        gamma_sums += power_grad * load(s.logs + i);
        // By division: a share may be so small that its inverse is infinite.
        const VectorOf<Real> share_grad = share > VectorOf<Real>{} ? gamma * power_grad / share : VectorOf<Real>{};
        store<Real>(s.circle + i, share_grad);
        store<Real>(s.grad + i, share_grad);
    }
    // shift; s.spare becomes the gradient of the mixed weights
    close_circle(s.circle, N, P);
    Real* kernel_grad = commands_grad + M;
    Real kernel_mean = 0;
    std::fill_n(s.spare, P, Real(0));
    for (int64_t j = 0; j < S; j++) {
        const int64_t move = move_of(j, sizes);
        scaled_add(head.kernel[j], s.circle + move, P, s.spare);
        kernel_grad[j] = dot(s.grad, s.mixed + N - move, P);
        kernel_mean += head.kernel[j] * kernel_grad[j];
    }
    for (int64_t j = 0; j < S; j++) kernel_grad[j] = head.kernel[j] * (kernel_grad[j] - kernel_mean);
    std::fill(s.spare + N, s.spare + P, Real(0));
    // mixture
    const Real content_mean = dot(s.spare, s.content, P);
    const Real gate_grad = content_mean - dot(s.spare, s.previous, P);
    if (previous_grad)
        for (int64_t i = 0; i < N; i++) previous_grad[i] = (1 - head.gate) * s.spare[i];
    // content; s.spare becomes the gradient of the dot products
    const VectorOf<Real> gate = all(head.gate), strength = all(head.strength), inverse = all(head.inverse);
    VectorOf<Real> strength_sums{};
    for (int64_t i = 0; i < P; i += L) {
        const VectorOf<Real> cosine = load(s.cosine + i);
        const VectorOf<Real> score_grad = gate * load(s.content + i) * (load(s.spare + i) - all(content_mean));
        const VectorOf<Real> scaled = strength * score_grad;
        strength_sums += score_grad * cosine;
        store<Real>(s.turned + i, load(s.turned + i) + scaled * cosine);
        store<Real>(s.spare + i, scaled * (inverse * load(s.inverse + i)));
    }
    const Real strength_grad = sum_lanes<Real>(strength_sums), shrink = head.slope * head.strength * strength_grad;
    for (int64_t m = 0; m < M; m++) {
        const Real key = head.key[m];
        scaled_add(key, s.spare, P, s.gradient + m * P);
        commands_grad[m] = (dot(s.spare, memory + m * P, P) - shrink * key) * (1 - key * key);
    }
    commands_grad[M + S] = strength_grad * sigmoid(head.raw[M + S]);
    commands_grad[M + S + 1] = gate_grad * head.gate * (1 - head.gate);
    commands_grad[M + S + 2] = sum_lanes<Real>(gamma_sums) * sigmoid(head.raw[M + S + 2]);
}

// The part of the cosines' gradient through the length of the slots, for all heads of a memory at once.
template <typename Real>
void spread_turns(const Real* memory, int64_t M, const Scratch<Real>& s) {
    for (int64_t i = 0; i < s.P; i += LANES_OF<Real>) {
        const VectorOf<Real> by = load(s.turned + i) * load(s.slope + i);
        for (int64_t at = i; at < M * s.P; at += s.P)
            store<Real>(s.gradient + at, load(s.gradient + at) - load(memory + at) * by);
        store<Real>(s.turned + i, VectorOf<Real>{});
    }
}

// --- writing

template <typename Real>
void read_contents(const Real* raw, const Sizes& sizes, const Scratch<Real>& s) {
    for (int64_t h = 0; h < sizes.W; h++, raw += 2 * sizes.M)
        for (int64_t m = 0; m < sizes.M; m++) {
            s.erase[h * sizes.M + m] = sigmoid(raw[m]);
            s.add[h * sizes.M + m] = std::tanh(raw[sizes.M + m]);
        }
}

// From s.before and s.write_weights to s.after: all heads erase, then all add.
template <typename Real>
void write(const Sizes& sizes, const Scratch<Real>& s) {
    const int64_t M = sizes.M, W = sizes.W, P = s.P;
    for (int64_t m = 0; m < M; m++) {
        Real* after = s.after + m * P;
        for (int64_t h = 0; h < W; h++) {
            const Real* left = h ? after : s.before + m * P;
            const VectorOf<Real> erase = all(s.erase[h * M + m]);
            for (int64_t i = 0; i < P; i += LANES_OF<Real>)
                store<Real>(after + i, load(left + i) * (all(Real(1)) - load(s.write_weights + h * P + i) * erase));
        }
        for (int64_t h = 0; h < W; h++) scaled_add(s.add[h * M + m], s.write_weights + h * P, P, after);
    }
}

// s.gradient, of the memory after, becomes that of the memory before; adds to s.write_grads.
template <typename Real>
void write_backward(const Sizes& sizes, const Scratch<Real>& s, Real* raw_grad) {
    constexpr int64_t L = LANES_OF<Real>;
    const int64_t M = sizes.M, W = sizes.W, P = s.P;
    const VectorOf<Real> one = all(Real(1));
    for (int64_t m = 0; m < M; m++) {
        const Real* before = s.before + m * P;
        Real* gradient = s.gradient + m * P;
        // The product over all other heads is that of those ahead and those behind: a quotient might be 0 / 0.
        for (int64_t i = 0; i < P; i += L) store<Real>(s.kept + i, one);
        for (int64_t h = 0; h < W - 1; h++) {
            const VectorOf<Real> erase = all(s.erase[h * M + m]);
            for (int64_t i = 0; i < P; i += L) {
                const VectorOf<Real> kept = load(s.kept + i);
                store<Real>(s.ahead + h * P + i, kept);
                store<Real>(s.kept + i, kept * (one - load(s.write_weights + h * P + i) * erase));
            }
        }
        std::copy_n(s.kept, P, s.ahead + (W - 1) * P);
        for (int64_t i = 0; i < P; i += L) store<Real>(s.kept + i, one);
        for (int64_t h = W - 1; h >= 0; h--) {
            const Real erase = s.erase[h * M + m], add = s.add[h * M + m];
            VectorOf<Real> erase_sums{}, add_sums{};
            for (int64_t i = 0; i < P; i += L) {
                const VectorOf<Real> weights = load(s.write_weights + h * P + i), grad = load(gradient + i);
                const VectorOf<Real> kept = load(s.kept + i);
                const VectorOf<Real> erased = grad * load(before + i) * (load(s.ahead + h * P + i) * kept);
                Real* weights_grad = s.write_grads + h * P + i;
                store<Real>(weights_grad, load(weights_grad) + (grad * all(add) - erased * all(erase)));
                erase_sums -= weights * erased;
                add_sums += weights * grad;
                store<Real>(s.kept + i, kept * (one - weights * all(erase)));
            }
            raw_grad[2 * h * M + m] = sum_lanes<Real>(erase_sums) * erase * (1 - erase);
            raw_grad[(2 * h + 1) * M + m] = sum_lanes<Real>(add_sums) * (1 - add * add);
        }
        for (int64_t i = 0; i < P; i += L) store<Real>(gradient + i, load(gradient + i) * load(s.kept + i));
    }
}

// --- one row of the batch

template <typename Real>
struct State {
    Real *memory, *read_weights, *write_weights;
    State row(int64_t b, const Sizes& s) const {
        const auto at = [b](Real* all_rows, int64_t size) { return all_rows ? all_rows + b * size : nullptr; };
        return {at(memory, s.N * s.M), at(read_weights, s.R * s.N), at(write_weights, s.W * s.N)};
    }
};

template <typename Real>
void step(const Real* commands, State<const Real> old, State<Real> fresh, Real* reads, const Sizes& sizes,
          const Scratch<Real>& s) {
    const int64_t N = sizes.N, M = sizes.M, P = s.P, place = sizes.place();
    turn(old.memory, sizes, P, s.before);
    measure(s.before, M, P, s.inverse, s.slope);
    for (int64_t h = 0; h < sizes.W; h++, commands += place) {
        const Head<Real> head = read_commands(commands, sizes, s);
        find(head, s.before, old.write_weights + h * N, sizes, s);
        sharpen(head.gamma, s, N, s.write_weights + h * P);
        std::copy_n(s.write_weights + h * P, N, fresh.write_weights + h * N);
    }
    read_contents(commands + sizes.R * place, sizes, s);
    write(sizes, s);
    turn_back(s.after, sizes, P, fresh.memory);
    measure(s.after, M, P, s.inverse, s.slope);
    for (int64_t h = 0; h < sizes.R; h++, commands += place) {
        const Head<Real> head = read_commands(commands, sizes, s);
        find(head, s.after, old.read_weights + h * N, sizes, s);
        sharpen(head.gamma, s, N, s.spare);
        std::copy_n(s.spare, N, fresh.read_weights + h * N);
        for (int64_t m = 0; m < M; m++) reads[h * M + m] = dot(s.spare, s.after + m * P, P);
    }
}

// A gradient that is null is zero as an input, and not computed as an output.
template <typename Real>
void step_backward(const Real* commands, State<const Real> old, State<const Real> fresh, State<const Real> fresh_grad,
                   const Real* reads_grad, Real* commands_grad, State<Real> old_grad, const Sizes& sizes,
                   const Scratch<Real>& s) {
    const int64_t N = sizes.N, M = sizes.M, P = s.P, place = sizes.place();
    std::fill_n(s.turned, P, Real(0));
    if (fresh_grad.memory) turn(fresh_grad.memory, sizes, P, s.gradient);
    else std::fill_n(s.gradient, M * P, Real(0));

    turn(fresh.memory, sizes, P, s.after);
    measure(s.after, M, P, s.inverse, s.slope);
    for (int64_t h = 0; h < sizes.R; h++) {
        Real* weights = s.ahead;  // there is at least one writing head
        copy_padded(fresh.read_weights + h * N, N, P, weights);
        if (fresh_grad.read_weights) copy_padded(fresh_grad.read_weights + h * N, N, P, s.grad);
        else std::fill_n(s.grad, P, Real(0));
        if (reads_grad) {
            combine(reads_grad + h * M, s.after, M, P, s.grad);
            for (int64_t m = 0; m < M; m++) scaled_add(reads_grad[h * M + m], weights, P, s.gradient + m * P);
        }
        const int64_t at = (sizes.W + h) * place;
        const Head<Real> head = read_commands(commands + at, sizes, s);
        find(head, s.after, old.read_weights + h * N, sizes, s);
        find_backward(head, s.after, weights, sizes, s, commands_grad + at,
                      old_grad.read_weights ? old_grad.read_weights + h * N : nullptr);
    }
    spread_turns(s.after, M, s);

    turn(old.memory, sizes, P, s.before);
    measure(s.before, M, P, s.inverse, s.slope);
    for (int64_t h = 0; h < sizes.W; h++) {
        copy_padded(fresh.write_weights + h * N, N, P, s.write_weights + h * P);
        if (fresh_grad.write_weights) copy_padded(fresh_grad.write_weights + h * N, N, P, s.write_grads + h * P);
        else std::fill_n(s.write_grads + h * P, P, Real(0));
    }
    const int64_t contents = (sizes.W + sizes.R) * place;
    read_contents(commands + contents, sizes, s);
    write_backward(sizes, s, commands_grad + contents);
    for (int64_t h = 0; h < sizes.W; h++) {
        std::copy_n(s.write_grads + h * P, P, s.grad);
        const Head<Real> head = read_commands(commands + h * place, sizes, s);
        find(head, s.before, old.write_weights + h * N, sizes, s);
        find_backward(head, s.before, s.write_weights + h * P, sizes, s,
                      commands_grad + h * place, old_grad.write_weights ? old_grad.write_weights + h * N : nullptr);
    }
    if (!old_grad.memory) return;
    spread_turns(s.before, M, s);
    turn_back(s.gradient, sizes, P, old_grad.memory);
}

// Calls row(b, scratch) for every row of the batch; false where there is no memory for the scratch.
template <typename Real, typename Row>
bool for_rows(int64_t B, const Sizes& sizes, int threads, Row row) {
    const int64_t size = Scratch<Real>(nullptr, sizes).size;
    const std::unique_ptr<Real[]> scratch(new (std::nothrow) Real[threads * size]);
    if (!scratch) return false;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t b = 0; b < B; b++) row(b, Scratch<Real>(scratch.get() + this_thread() * size, sizes));
    return true;
}

template <typename Real>
bool forward(const Real* commands, State<const Real> old, State<Real> fresh, Real* reads, int64_t B,
             const Sizes& sizes, int threads) {
    return for_rows<Real>(B, sizes, threads, [&](int64_t b, const Scratch<Real>& s) {
        step(commands + b * sizes.commands(), old.row(b, sizes), fresh.row(b, sizes), reads + b * sizes.R * sizes.M,
             sizes, s);
    });
}

template <typename Real>
bool backward(const Real* commands, State<const Real> old, State<const Real> fresh, State<const Real> fresh_grad,
              const Real* reads_grad, Real* commands_grad, State<Real> old_grad, int64_t B, const Sizes& sizes,
              int threads) {
    return for_rows<Real>(B, sizes, threads, [&](int64_t b, const Scratch<Real>& s) {
        const int64_t at = b * sizes.commands();
        step_backward(commands + at, old.row(b, sizes), fresh.row(b, sizes), fresh_grad.row(b, sizes),
                      reads_grad ? reads_grad + b * sizes.R * sizes.M : nullptr, commands_grad + at,
                      old_grad.row(b, sizes), sizes, s);
    });
}

}  // namespace

extern "C" {

// Both return whether there was enough memory.
#define FOCI_NTM(Real, suffix)                                                                                        \
    bool foci_ntm_forward_##suffix(const Real* commands, const Real* memory, const Real* read_weights,                \
                                   const Real* write_weights, int64_t B, int64_t N, int64_t M, int64_t R, int64_t W,  \
                                   int64_t S, Real* new_memory, Real* new_read_weights, Real* new_write_weights,      \
                                   Real* reads, int threads) {                                                        \
        return forward<Real>(commands, {memory, read_weights, write_weights},                                         \
                             {new_memory, new_read_weights, new_write_weights}, reads, B, {N, M, R, W, S}, threads);  \
    }                                                                                                                 \
    bool foci_ntm_backward_##suffix(                                                                                  \
        const Real* commands, const Real* memory, const Real* read_weights, const Real* write_weights, int64_t B,     \
        int64_t N, int64_t M, int64_t R, int64_t W, int64_t S, const Real* new_memory, const Real* new_read_weights,  \
        const Real* new_write_weights, const Real* new_memory_grad, const Real* new_read_grad,                        \
        const Real* new_write_grad, const Real* reads_grad, Real* commands_grad, Real* memory_grad, Real* read_grad,  \
        Real* write_grad, int threads) {                                                                              \
        return backward<Real>(commands, {memory, read_weights, write_weights},                                        \
                              {new_memory, new_read_weights, new_write_weights},                                      \
                              {new_memory_grad, new_read_grad, new_write_grad}, reads_grad, commands_grad,            \
                              {memory_grad, read_grad, write_grad}, B, {N, M, R, W, S}, threads);                     \
    }

FOCI_NTM(float, float32)
FOCI_NTM(double, float64)
}
