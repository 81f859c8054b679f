// Resizes RGB images with antialiasing, to the pixels of PyTorch's uint8 kernel, which is Pillow's: integer weights,
// along rows first, rounded to bytes between the two passes.
//
// Weights are computed in double precision in the order of PyTorch's UpSampleKernel.cpp; setup.py forbids fused
// multiply-adds in this file's users, which would round some of them differently.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t SPARE = 64;  // bytes behind every image: vectors are loaded beyond its last pixel

inline double triangle(double x) { return x < 0 ? (x > -1 ? 1 + x : 0) : x < 1 ? 1 - x : 0; }

inline double cubic(double x) {  // Keys, a = -0.5
  constexpr double A = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((A + 2) * x - (A + 3)) * x * x + 1;
  return x < 2 ? ((A * x - 5 * A) * x + 8 * A) * x - 4 * A : 0;
}

// Of one direction: for each output its first input, how many it has, and `taps` weights of `bits` bits of fraction.
struct Filter {
  int64_t taps = 0;
  int bits = 0;
  std::vector<int64_t> first, used;
  std::vector<int16_t> weights;
  std::vector<double> exact;

  void make(int64_t from, int64_t to, bool bicubic) {
    double scale = static_cast<double>(from) / to;
    int size = bicubic ? 4 : 2;
    double support = scale >= 1 ? size * 0.5 * scale : size * 0.5;
    double inverse = scale >= 1 ? 1 / scale : 1, largest = 0;
    int64_t most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
    taps = (most + 3) & ~int64_t{3};  // fours are multiplied at once; the others stay zero
    first.resize(to), used.resize(to), exact.assign(to * taps, 0), weights.resize(to * taps);
    for (int64_t i = 0; i < to; i++) {
      double center = scale * (i + 0.5), total = 0, *row = exact.data() + i * taps;
      int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
      int64_t count = std::min(static_cast<int64_t>(center + support + 0.5), from) - begin;
      count = std::clamp<int64_t>(count, 0, most);
      for (int64_t j = 0; j < count; j++) {
        double x = (j + begin - center + 0.5) * inverse;
        total += row[j] = bicubic ? cubic(x) : triangle(x);
      }
      for (int64_t j = 0; j < count && total != 0; j++) largest = std::max(largest, row[j] /= total);
      first[i] = begin, used[i] = count;
    }
    // As many bits as leave the largest weight within 16.
    for (bits = 0; bits < 22; bits++)
      if (static_cast<int>(0.5 + largest * (1 << (bits + 1))) >= 1 << 15) break;
    for (size_t i = 0; i < exact.size(); i++)
      weights[i] = static_cast<int16_t>((exact[i] < 0 ? -0.5 : 0.5) + exact[i] * (1 << bits));
  }
};

inline uint8_t rounded(int32_t sum, int bits) { return static_cast<uint8_t>(std::clamp(sum >> bits, 0, 255)); }

// Rows of RGB pixels, filtered along the row; `mirrored` writes them from right to left.
void filter_rows(
    const uint8_t* in, int64_t in_stride, uint8_t* out, int64_t out_stride, int64_t rows, int64_t width,
    const Filter& filter, bool mirrored) {
  const int32_t half = 1 << (filter.bits - 1);
  int64_t row = 0;
#if defined(__AVX2__)
  // Of four pixels: the first two, then the last two, as pairs of one color each, for a multiply-add of 16 bits.
  const __m256i front = _mm256_setr_epi8(
      0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1,
      -1);
  const __m256i back = _mm256_setr_epi8(
      6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1,
      -1, -1);
  auto load_two = [](const uint8_t* upper, const uint8_t* lower) {  // one row in each half
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(upper))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower)), 1);
  };
  for (; row + 4 <= rows; row += 4) {
    const uint8_t* lines = in + row * in_stride;
    for (int64_t x = 0; x < width; x++) {
      const uint8_t* at = lines + 3 * filter.first[x];
      const int16_t* weights = filter.weights.data() + x * filter.taps;
      __m256i upper = _mm256_set1_epi32(half), lower = upper;
      for (int64_t k = 0; k < filter.used[x]; k += 4, at += 12, weights += 4) {
        int32_t pairs[2];
        std::memcpy(pairs, weights, sizeof pairs);
        __m256i left = _mm256_set1_epi32(pairs[0]), right = _mm256_set1_epi32(pairs[1]);
        __m256i a = load_two(at, at + in_stride), b = load_two(at + 2 * in_stride, at + 3 * in_stride);
        upper = _mm256_add_epi32(upper, _mm256_madd_epi16(_mm256_shuffle_epi8(a, front), left));
        lower = _mm256_add_epi32(lower, _mm256_madd_epi16(_mm256_shuffle_epi8(b, front), left));
        upper = _mm256_add_epi32(upper, _mm256_madd_epi16(_mm256_shuffle_epi8(a, back), right));
        lower = _mm256_add_epi32(lower, _mm256_madd_epi16(_mm256_shuffle_epi8(b, back), right));
      }
      __m128i shift = _mm_cvtsi32_si128(filter.bits);
      __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(upper, shift), _mm256_sra_epi32(lower, shift));
      __m256i bytes = _mm256_packus_epi16(words, words);  // pixels 0 and 2 in the lower half, 1 and 3 in the upper
      uint64_t even = _mm256_extract_epi64(bytes, 0), odd = _mm256_extract_epi64(bytes, 2);
      uint8_t* to = out + row * out_stride + 3 * (mirrored ? width - 1 - x : x);
      for (int half_row = 0; half_row < 2; half_row++, to += 2 * out_stride, even >>= 32, odd >>= 32) {
        std::memcpy(to, &even, 3);
        std::memcpy(to + out_stride, &odd, 3);
      }
    }
  }
#endif
  for (; row < rows; row++)
    for (int64_t x = 0; x < width; x++) {
      const uint8_t* at = in + row * in_stride + 3 * filter.first[x];
      const int16_t* weights = filter.weights.data() + x * filter.taps;
      int32_t sums[3] = {half, half, half};
      for (int64_t k = 0; k < filter.used[x]; k++)
        for (int c = 0; c < 3; c++) sums[c] += weights[k] * at[3 * k + c];
      uint8_t* to = out + row * out_stride + 3 * (mirrored ? width - 1 - x : x);
      for (int c = 0; c < 3; c++) to[c] = rounded(sums[c], filter.bits);
    }
}

// Columns: every output row is a sum of input rows. `bytes` is the length of a row of `out`.
void filter_columns(
    const uint8_t* in, int64_t in_stride, uint8_t* out, int64_t rows, int64_t bytes, const Filter& filter) {
  const int32_t half = 1 << (filter.bits - 1);
  for (int64_t y = 0; y < rows; y++, out += bytes) {
    const int16_t* weights = filter.weights.data() + y * filter.taps;
    int64_t used = filter.used[y], i = 0;
    const uint8_t* lines = in + filter.first[y] * in_stride;
#if defined(__AVX2__)
    for (; i < bytes; i += 16) {
      __m256i lower = _mm256_set1_epi32(half), upper = lower;
      for (int64_t k = 0; k < used; k += 2) {
        const uint8_t* at = lines + k * in_stride + i;
        __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        // The last of an odd number of rows has a pair without weight.
        bool two = k + 1 < used;
        __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(two ? at + in_stride : at));
        uint32_t pair = static_cast<uint16_t>(weights[k]) |
                        static_cast<uint32_t>(two ? static_cast<uint16_t>(weights[k + 1]) : 0) << 16;
        __m256i weight = _mm256_set1_epi32(static_cast<int32_t>(pair));
        lower = _mm256_add_epi32(lower, _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)), weight));
        upper = _mm256_add_epi32(upper, _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b)), weight));
      }
      __m128i shift = _mm_cvtsi32_si128(filter.bits);
      __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(lower, shift), _mm256_sra_epi32(upper, shift));
      words = _mm256_permute4x64_epi64(words, 0xD8);
      __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
      // Behind the last row of `out` is another thread's image.
      if (i + 16 <= bytes)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), packed);
      else
        std::memcpy(out + i, &packed, bytes - i);
    }
#endif
    for (; i < bytes; i++) {
      int32_t sum = half;
      for (int64_t k = 0; k < used; k++) sum += weights[k] * lines[k * in_stride + i];
      out[i] = rounded(sum, filter.bits);
    }
  }
}

void mirror(uint8_t* pixels, int64_t height, int64_t width) {
  for (int64_t y = 0; y < height; y++, pixels += 3 * width)
    for (int64_t left = 0, right = width - 1; left < right; left++, right--)
      std::swap_ranges(pixels + 3 * left, pixels + 3 * left + 3, pixels + 3 * right);
}

struct Resizer {
  Filter across, down;
  std::vector<uint8_t> between;  // rows filtered, columns not yet

  // `in` has SPARE bytes behind it, and may be changed. Mirrors where PyTorch's path does: where there are fewer pixels.
  void resize(uint8_t* in, int64_t height, int64_t width, uint8_t* out, int64_t size, bool bicubic, bool flipped) {
    bool same = height == size && width == size;
    if (flipped && !same && height * width <= size * size) mirror(in, height, width), flipped = false;
    const uint8_t* rows = in;
    int64_t stride = 3 * width;
    if (width != size) {
      across.make(width, size, bicubic);
      stride = 3 * size;
      between.resize(stride * height + SPARE);
      filter_rows(in, 3 * width, between.data(), stride, height, size, across, flipped);
      rows = between.data(), flipped = false;
    }
    if (height != size) {
      down.make(height, size, bicubic);
      filter_columns(rows, stride, out, size, stride, down);
    } else {
      std::memcpy(out, rows, stride * height);
    }
    if (flipped) mirror(out, size, size);
  }
};

}  // namespace
