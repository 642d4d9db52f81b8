// Scratch memory that the caller allocates, and tensors that may be missing.

#pragma once

#include <cstdint>

namespace {

// Hands out pieces of scratch; without memory it only counts.
struct Pieces {
    float* at;
    int64_t total = 0;
    float* take(int64_t count) {
        const int64_t first = total;
        total += count;
        return at ? at + first : nullptr;
    }
};

// Where a tensor that may be null continues after `count` numbers.
template <typename Real>
Real* after(Real* at, int64_t count) {
    return at ? at + count : nullptr;
}

}  // namespace
