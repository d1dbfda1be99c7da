// The vocabulary end of a step: what becomes of a row of logits, one float per token.
//
// Written in plain loops over fixed lanes, which compilers turn into vectors of any width: the order of every sum is
// written down, so each instruction set gives the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace forerun {

// Index of the first largest of n floats; -1 if one of them is NaN or there are none.
int64_t argmax(const float* row, size_t n);

// Temperature above 0; top_k 0, top_p 1 and min_p 0 are off.
struct Filters {
    double temperature = 1.0;
    int64_t top_k = 0;
    double top_p = 1.0;
    double min_p = 0.0;
};

// Weights that sum to one, over token ids in ascending order; no ids: over all tokens.
struct Support {
    size_t size = 0;
    std::unique_ptr<int64_t[]> ids;
    std::unique_ptr<float[]> weights;
};

// The distribution that the filters make of n logits: temperature, then top-k, top-p and min-p; among equals the
// smaller id comes first. Throws std::invalid_argument if a logit is NaN or +infinity, or none is finite.
Support nucleus(const float* row, size_t n, const Filters& filters);

// The k likeliest of n logits, likeliest first and the smaller id first among equals, with the logarithms of their
// probabilities; fewer where fewer are finite. Throws as `nucleus` does.
struct Likeliest {
    std::vector<int64_t> ids;
    std::vector<double> logs;
};
Likeliest likeliest(const float* row, size_t n, size_t k);

// The index of the first to arrive, token ids[i] (i if there are none) after an exponential time drawn from (key, id)
// over weights[i]; -1 if a weight is NaN or infinite, or none is positive. The times are those of forerun.core.noise.
int64_t race(const float* weights, const int64_t* ids, size_t n, uint64_t key);

}  // namespace forerun
