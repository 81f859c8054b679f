// Decodes a window of a baseline JPEG, to the pixels that libjpeg-turbo gives (DCT "islow", "fancy" upsampling).
//
// What is outside the window is read past without being computed. Whatever is unusual or damaged is not decoded at all:
// the caller then asks libjpeg, which knows how to recover. Sizes in pixels, positions in bytes; an MCU (minimum coded
// unit) is the block of 8 or 16 pixels that JPEG codes together.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "resize.h"
#include "stream.h"

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Lanes{__VA_ARGS__})
#endif

namespace {

// -------------------------------------------------------------------------------------------------------- inverse DCT

typedef int32_t Lanes __attribute__((vector_size(32)));
typedef int16_t Shorts __attribute__((vector_size(16)));
typedef int16_t Shorts16 __attribute__((vector_size(32)));

template <int BITS>
inline void transform(Lanes* x) {  // jidctint.c: 13 bits of fraction in the constants
  Lanes z1 = (x[2] + x[6]) * 4433, tmp2 = z1 - x[6] * 15137, tmp3 = z1 + x[2] * 6270;
  Lanes tmp0 = (x[0] + x[4]) * 8192, tmp1 = (x[0] - x[4]) * 8192;
  Lanes even0 = tmp0 + tmp3, even3 = tmp0 - tmp3, even1 = tmp1 + tmp2, even2 = tmp1 - tmp2;
  Lanes z5 = (x[7] + x[3] + x[5] + x[1]) * 9633;
  Lanes z3 = z5 - (x[7] + x[3]) * 16069, z4 = z5 - (x[5] + x[1]) * 3196;
  z1 = (x[7] + x[1]) * -7373;
  Lanes z2 = (x[5] + x[3]) * -20995;
  Lanes odd0 = x[7] * 2446 + z1 + z3, odd1 = x[5] * 16819 + z2 + z4;
  Lanes odd2 = x[3] * 25172 + z2 + z3, odd3 = x[1] * 12299 + z1 + z4;
  constexpr int HALF = 1 << (BITS - 1);
  x[0] = (even0 + odd3 + HALF) >> BITS, x[7] = (even0 - odd3 + HALF) >> BITS;
  x[1] = (even1 + odd2 + HALF) >> BITS, x[6] = (even1 - odd2 + HALF) >> BITS;
  x[2] = (even2 + odd1 + HALF) >> BITS, x[5] = (even2 - odd1 + HALF) >> BITS;
  x[3] = (even3 + odd0 + HALF) >> BITS, x[4] = (even3 - odd0 + HALF) >> BITS;
}

inline void transpose(Lanes* x) {
  Lanes a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = SHUFFLE(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    a[i + 1] = SHUFFLE(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      b[i + 2 * j] = SHUFFLE(a[i + j], a[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
      b[i + 2 * j + 1] = SHUFFLE(a[i + j], a[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; i++) {
    x[i] = SHUFFLE(b[i], b[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
    x[4 + i] = SHUFFLE(b[i], b[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

template <class Vector, class Number>
inline Vector vector_at(const Number* from) {
  Vector values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

inline Lanes magnitude(Lanes x) { return x ^ (x >> 31); }

// Columns 2 i and 2 i + 1 as two bytes of each lane, which is a row.
inline Lanes two_columns(const Lanes* x, int i) {
  Shorts16 both = reinterpret_cast<Shorts16>((x[2 * i] & 0xFFFF) | (x[2 * i + 1] << 16)) + 128;
  both = both < 0 ? Shorts16{} : both;
  both = both > 255 ? Shorts16{} + 255 : both;
  Lanes bytes = reinterpret_cast<Lanes>(both);
  return bytes | (bytes >> 8);
}

inline void write_columns(const Lanes* x, uint8_t* pixels, int64_t stride) {
  Lanes left = (two_columns(x, 0) & 0xFFFF) | (two_columns(x, 1) << 16);
  Lanes right = (two_columns(x, 2) & 0xFFFF) | (two_columns(x, 3) << 16);
  Lanes rows[2] = {
      SHUFFLE(left, right, 0, 8, 1, 9, 2, 10, 3, 11), SHUFFLE(left, right, 4, 12, 5, 13, 6, 14, 7, 15)};
  uint64_t lines[8];
  std::memcpy(lines, rows, sizeof lines);
  for (int i = 0; i < 8; i++) std::memcpy(pixels + i * stride, lines + i, 8);
}

// One block of coefficients to 8 x 8 pixels. `large` collects magnitudes, of which libjpeg's kernels have 16 bits.
inline void compute_block(
    const int16_t* block, const int32_t* quantizer, uint8_t* pixels, int64_t stride, Lanes& large) {
  Lanes x[8];
  for (int i = 0; i < 8; i++) {
    x[i] = __builtin_convertvector(vector_at<Shorts>(block + 8 * i), Lanes) * vector_at<Lanes>(quantizer + 8 * i);
    large |= magnitude(x[i]) << 2;
  }
  transform<11>(x);
  for (int i = 0; i < 8; i++) large |= magnitude(x[i]);
  transpose(x);
  transform<18>(x);
  write_columns(x, pixels, stride);
}

inline void fill_block(int first, uint8_t* pixels, int64_t stride, Lanes& large) {  // all other coefficients are 0
  large |= magnitude(Lanes{} + first * 4);
  uint8_t value = std::clamp(((first + 4) >> 3) + 128, 0, 255);
  for (int i = 0; i < 8; i++) std::memset(pixels + i * stride, value, 8);
}

// ------------------------------------------------------------------------------------------------------------ decoder

enum Rest { DAMAGED, ZERO, PRESENT };

struct Range {
  int64_t first, end;
  bool contains(int64_t i) const { return i >= first && i < end; }
};

struct Window {
  int64_t left, top, width, height;
};

struct Table {  // of restart segments
  int64_t first_column, first_row, interval, unit_width, unit_height, rows, segments;
  const int64_t* edges;
};

struct Decoder : Stream {
  Range columns, rows;               // MCUs that the window needs
  std::vector<uint8_t> planes[3];    // kept for the next image
  Lanes large;                       // magnitudes of all values, or-ed

  const uint8_t* read_header(const uint8_t* at, const uint8_t* end);
  void place(const Window& window);
  Rest read_block(Component& component, int16_t* block);
  bool skip_unit();
  bool is_exact() const;
  void give_back();
  bool read_unit(int64_t column, int64_t row);
  bool read_stream(const uint8_t* at, const uint8_t* end);
  bool read_segments(const uint8_t* body, const uint8_t* end, const Table& table);
  void write(const Window& window, uint8_t* out) const;
  bool decode(const uint8_t* body, const uint8_t* end, const Table* table, const Window& window, uint8_t* out);
};

// All up to the entropy-coded bytes, where these begin; null for what is not decoded here.
const uint8_t* Decoder::read_header(const uint8_t* at, const uint8_t* end) {
  forget();
  large = Lanes{};
  if (end - at < 2 || word_at(at) != 0xFFD8) return nullptr;
  const uint8_t* body = read_markers(at + 2, end);
  if (!body || ended) return nullptr;
  if (scan.size() != components.size() || (colors() != GREY && colors() != YCC)) return nullptr;
  bool common = across == 1 ? down == 1 : across == 2 && down <= 2, numbered = true;
  for (size_t i = 0; i < components.size(); i++) {
    const Component& component = components[i];
    numbered &= component.id == static_cast<int>(i) + 1;
    // libjpeg interpolates chroma that is at least three samples wide.
    if (component.width < 3 || !quantizers_of_bytes(component)) return nullptr;
    common &= i ? component.across == 1 && component.down == 1 : component.across == across && component.down == down;
  }
  return common && (numbered || components.size() == 1 || jfif.present || adobe == 1) ? body : nullptr;
}

// Which MCUs a window needs: where chroma is subsampled, one more sample around it.
void Decoder::place(const Window& window) {
  int64_t unit_width = 8 * across, unit_height = 8 * down, overlap_x = across > 1, overlap_y = down > 1;
  columns.first = std::max<int64_t>(0, window.left - overlap_x) / unit_width;
  columns.end = (std::min(width, window.left + window.width + overlap_x) + unit_width - 1) / unit_width;
  rows.first = std::max<int64_t>(0, window.top - overlap_y) / unit_height;
  rows.end = (std::min(height, window.top + window.height + overlap_y) + unit_height - 1) / unit_height;
  for (size_t i = 0; i < components.size(); i++) {
    Component& component = components[i];
    component.stride = (columns.end - columns.first) * 8 * component.across;
    size_t bytes = component.stride * (rows.end - rows.first) * 8 * component.down;
    if (planes[i].size() < bytes) planes[i].resize(bytes);
    component.plane = planes[i].data();
    ac[component.ac].make_pairs();
  }
}

// The next coefficient, whatever its code: its number and value. ZERO if the block has no more.
inline Rest read_next(Bits& bits, const Codes& codes, int& k, int& value) {
  int run;
  if (!find_next(bits, codes, true, run, value)) return DAMAGED;
  if (run == END_OF_BLOCK) return ZERO;
  k += run + 1;
  return k > 63 ? DAMAGED : PRESENT;
}

// The coefficients of a block behind its first one; on a copy of `shared`, so that it stays in registers.
__attribute__((noinline)) Rest read_rest(Bits& shared, const Codes& codes, int16_t* block) {
  Bits bits = shared;
  int k = 0;
  while (k < 63) {
    bits.refill();
    Pair pair = codes.pairs[bits.peek(LOOK_BITS)];
    if (__builtin_expect(k + pair.steps < 63, 1)) {
      block[POSITIONS.at[k + pair.step1]] = pair.value1;
      block[POSITIONS.at[k + pair.step2]] = pair.value2;
      bits.skip(pair.bits & ~ENDS);
      k += pair.steps;
      if (pair.bits & ENDS) break;
      continue;
    }
    int value;
    Rest next = read_next(bits, codes, k, value);
    if (next == DAMAGED) return DAMAGED;
    if (next == ZERO) break;
    block[POSITIONS.at[k]] = value;
  }
  shared = bits;
  return k ? PRESENT : ZERO;
}

// The same without computing them.
__attribute__((noinline)) Rest skip_rest(Bits& shared, const Codes& codes) {
  if (!codes.has_skips) {
    int16_t unused[BLOCK];
    return read_rest(shared, codes, unused);
  }
  Bits bits = shared;
  for (int k = 0; k < 63;) {
    bits.refill();
    Skip skip = codes.skips[bits.peek(LOOK_BITS)];
    if (__builtin_expect(skip.bits && k + skip.coefficients < 63, 1)) {
      bits.skip(skip.bits);
      if (skip.ends) break;
      k += skip.coefficients;
      continue;
    }
    int value;
    Rest next = read_next(bits, codes, k, value);
    if (next == DAMAGED) return DAMAGED;
    if (next == ZERO) break;
  }
  shared = bits;
  return PRESENT;
}

// The coefficients of a block; none are kept if it is null.
Rest Decoder::read_block(Component& component, int16_t* block) {
  int run, value;
  bits.refill();
  if (!find_next(bits, dc[component.dc], false, run, value)) return DAMAGED;
  int first = component.predicted += value;
  Rest rest = block ? read_rest(bits, ac[component.ac], block) : skip_rest(bits, ac[component.ac]);
  if (block) block[0] = first;
  return bits.end() > segment_end || first != static_cast<int16_t>(first) ? DAMAGED : rest;
}

bool Decoder::skip_unit() {
  for (Component& component : components)
    for (int i = 0; i < component.across * component.down; i++)
      if (read_block(component, nullptr) == DAMAGED) return false;
  return true;
}

// All coefficients first: a processor cannot load at once what it has just stored in pieces.
bool Decoder::read_unit(int64_t column, int64_t row) {
  if (!columns.contains(column) || !rows.contains(row)) return skip_unit();
  alignas(64) int16_t blocks[6][BLOCK];
  Rest rests[6];
  std::memset(blocks, 0, sizeof blocks);
  int count = 0;
  for (Component& component : components)
    for (int i = 0; i < component.across * component.down; i++, count++)
      if (!(rests[count] = read_block(component, blocks[count]))) return false;
  Lanes values = large;
  count = 0;
  for (Component& component : components)
    for (int y = 0; y < component.down; y++)
      for (int x = 0; x < component.across; x++, count++) {
        int64_t left = ((column - columns.first) * component.across + x) * 8;
        int64_t top = ((row - rows.first) * component.down + y) * 8;
        uint8_t* pixels = component.plane + top * component.stride + left;
        const int32_t* quantizer = quantizers[component.quantizer];
        if (rests[count] == ZERO)
          fill_block(blocks[count][0] * quantizer[0], pixels, component.stride, values);
        else
          compute_block(blocks[count], quantizer, pixels, component.stride, values);
      }
  large = values;
  return true;
}

// Whether every value that was computed is one that libjpeg computes with, too.
bool Decoder::is_exact() const {
  int32_t any = 0;
  for (int i = 0; i < 8; i++) any |= large[i];
  return !(any & ~16383);
}

// The whole scan, down to the last MCU that is needed.
bool Decoder::read_stream(const uint8_t* at, const uint8_t* end) {
  int64_t count = 0;
  for (Component& component : components) ac[component.ac].make_skips();
  at = open_segment(at, end);
  for (int64_t row = 0; row < rows.end; row++)
    for (int64_t column = 0; column < units_across(); column++, count++) {
      if (row + 1 == rows.end && column == columns.end) return true;
      bool restarts = interval && count && count % interval == 0;
      if (restarts && !(at = next_segment(at, end, count / interval))) return false;
      if (!read_unit(column, row)) return false;
    }
  return true;
}

// Only the restart segments that a table has, each of which must begin and end where it says.
bool Decoder::read_segments(const uint8_t* body, const uint8_t* end, const Table& table) {
  if (!interval || interval != table.interval) return false;
  if (8 * across != table.unit_width || 8 * down != table.unit_height) return false;
  int64_t first = table.first_column, stop = first + table.segments * interval;
  if (first % interval || first > columns.first || columns.end > stop) return false;
  if (table.first_row > rows.first || rows.end > table.first_row + table.rows) return false;
  for (int64_t row = rows.first; row < rows.end; row++) {
    const int64_t* edges = table.edges + (row - table.first_row) * (table.segments + 1);
    for (int64_t i = 0; i < table.segments; i++) {
      if (edges[i] < 0 || edges[i] > edges[i + 1] || edges[i + 1] > end - body) return false;
      const uint8_t* marker = open_segment(body + edges[i], end);
      for (int64_t column = 0; column < interval; column++)
        if (!read_unit(first + i * interval + column, row)) return false;
      if (!close_segment() || marker + 2 != body + edges[i + 1]) return false;
    }
  }
  return true;
}

// ------------------------------------------------------------------------------------------------- chroma and colours

// A row of chroma at the size of the image, in the columns of a window.
struct Chroma {
  std::vector<int16_t> sums;
  std::vector<uint8_t> row;

  const uint8_t* read(const Component& component, const Decoder& decoder, const Window& window, int64_t y) {
    int64_t top = decoder.rows.first * 8, left = decoder.columns.first * 8;  // it has one block per MCU
    auto line = [&](int64_t at) {
      return component.plane + (std::clamp<int64_t>(at, 0, component.height - 1) - top) * component.stride - left;
    };
    if (decoder.across == 1) return line(y) + window.left;
    int64_t first = window.left / 2, end = (window.left + window.width + 1) / 2, count = end - first;
    int64_t right = left + component.stride;
    int64_t before = std::max(first - 1, left), behind = std::min({end, component.width - 1, right - 1});
    sums.resize(count + 2), row.resize(2 * count);
    int16_t* sum = sums.data() + 1;
    if (decoder.down == 2) {  // 3 : 1 of the nearer and the farther line
      const uint8_t *near = line(y / 2), *far = line(y / 2 + (y % 2 ? 1 : -1));
      for (int64_t i = 0; i < count; i++) sum[i] = 3 * near[first + i] + far[first + i];
      sum[-1] = 3 * near[before] + far[before], sum[count] = 3 * near[behind] + far[behind];
      interpolate<4, 8, 7>(sum, count);
    } else {
      const uint8_t* near = line(y);
      for (int64_t i = 0; i < count; i++) sum[i] = near[first + i];
      sum[-1] = near[before], sum[count] = near[behind];
      interpolate<2, 1, 2>(sum, count);
    }
    return row.data() + window.left % 2;
  }

  template <int BITS, int EVEN, int ODD>
  void interpolate(const int16_t* sum, int64_t count) {  // jdsample.c
    uint8_t* out = row.data();
    for (int64_t i = 0; i < count; i++) {
      out[2 * i] = (3 * sum[i] + sum[i - 1] + EVEN) >> BITS;
      out[2 * i + 1] = (3 * sum[i] + sum[i + 1] + ODD) >> BITS;
    }
  }
};

inline uint8_t limited(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

void convert_row(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* out, int64_t count) {  // jdcolor.c
  for (int64_t i = 0; i < count; i++) {
    int luma = y[i], blue = cb[i] - 128, red = cr[i] - 128;
    out[3 * i] = limited(luma + ((91881 * red + 32768) >> 16));
    out[3 * i + 1] = limited(luma + ((-22554 * blue - 46802 * red + 32768) >> 16));
    out[3 * i + 2] = limited(luma + ((116130 * blue + 32768) >> 16));
  }
}

void Decoder::write(const Window& window, uint8_t* out) const {
  const Component& luma = components[0];
  Chroma blue, red;
  for (int64_t y = window.top; y < window.top + window.height; y++, out += 3 * window.width) {
    int64_t row = y - rows.first * 8 * down, column = window.left - columns.first * 8 * across;
    const uint8_t* line = luma.plane + row * luma.stride + column;
    if (components.size() == 1) {
      for (int64_t i = 0; i < window.width; i++) out[3 * i] = out[3 * i + 1] = out[3 * i + 2] = line[i];
      continue;
    }
    const uint8_t *cb = blue.read(components[1], *this, window, y), *cr = red.read(components[2], *this, window, y);
    convert_row(line, cb, cr, out, window.width);
  }
}

void Decoder::give_back() {
  Stream::give_back(segment);
  for (std::vector<uint8_t>& plane : planes) Stream::give_back(plane);
}

// After `read_header`. False for what libjpeg must decode.
bool Decoder::decode(
    const uint8_t* body, const uint8_t* end, const Table* table, const Window& window, uint8_t* out) {
  if (window.left < 0 || window.top < 0 || window.width < 1 || window.height < 1) return false;
  if (window.left + window.width > width || window.top + window.height > height) return false;
  place(window);
  if (!(table ? read_segments(body, end, *table) : read_stream(body, end)) || !is_exact()) return false;
  write(window, out);
  return true;
}

// ------------------------------------------------------------------------------------------------------------- chunks

// The columns of a shard's table (data/sources/containers/shard_index.py), which have `rows` numbers each.
struct Shard {
  int64_t handle, bytes, rows, row_starts_count, within_count;
  const uint64_t *offset, *size;
  const int32_t* label;
  const uint32_t *width, *height;
  const uint16_t *scan_at, *frame_at;
  const uint8_t* mcu;
  const uint16_t* interval;
  const uint64_t *rows_at, *within_at;
  const uint32_t* row_starts;
  const uint16_t* within;
};

// What a recipe does with every image (data/augment/crop_flip.py).
struct Crops {
  double area_low, area_range, log_ratio_low, log_ratio_range, ratio_low, ratio_high, flip;
  int64_t attempts, draws, flip_at, size, bicubic, scaled, exif;
};

constexpr int64_t MOST_PIXELS = 178956970, SMALL_PIXELS = 1 << 24, MOST_PIXELS_PER_BYTE = 10000;  // as decode.py

// random_crop_box: the same operations in the same order, since each may round.
Window draw_window(int64_t width, int64_t height, const Crops& crops, const double* row) {
  for (int64_t i = 0; i < crops.attempts; i++, row += 4) {
    double pixels = static_cast<double>(width * height) * (crops.area_low + row[0] * crops.area_range);
    double shape = std::exp(crops.log_ratio_low + row[1] * crops.log_ratio_range);
    int64_t w = std::llrint(std::sqrt(pixels * shape)), h = std::llrint(std::sqrt(pixels / shape));
    if (w > 0 && w <= width && h > 0 && h <= height)
      return {static_cast<int64_t>(row[2] * (width - w + 1)), static_cast<int64_t>(row[3] * (height - h + 1)), w, h};
  }
  int64_t w = width, h = height;
  double ratio = static_cast<double>(width) / height;
  if (ratio < crops.ratio_low)
    h = std::llrint(width / crops.ratio_low);
  else if (ratio > crops.ratio_high)
    w = std::llrint(height * crops.ratio_high);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

bool contains(const uint8_t* at, const uint8_t* end, const void* bytes, int64_t count) {
  return memmem(at, end - at, bytes, count) != nullptr;
}

// _may_be_turned: whether EXIF or XMP data before the first table may turn it. Pillow then decides, in Python.
bool may_be_turned(const uint8_t* at, const uint8_t* end) {
  for (at += 2; end - at >= 4 && at[0] == 0xFF && at[1] != 0xDB && at[1] != 0xDA;) {
    if (at[1] == 0xFF) {
      at++;
      continue;
    }
    const uint8_t* next = std::min(end, at + 2 + word_at(at + 2));
    if (at[1] == 0xE1 && contains(at, next, "tiff:Orientation", 16)) return true;
    for (int kind = 0; kind < 6 && at[1] == 0xE1; kind++) {
      const uint8_t types[] = {3, 1, 4}, type = types[kind / 2];
      const uint8_t little[] = {0x12, 1, type, 0, 1, 0, 0, 0}, big[] = {1, 0x12, 0, type, 0, 0, 0, 1};
      auto entry = static_cast<const uint8_t*>(memmem(at, next - at, kind % 2 ? big : little, 8));
      for (int i = 8; entry && i < 12 && entry + i < next; i++)
        if (entry[i] > 1) return true;
    }
    at = next;
  }
  return false;
}

struct Chunks {
  Decoder decoder;
  Resizer resizer;
  std::vector<uint8_t> file, window;
  std::vector<int64_t> edges;

  bool read(int handle, int64_t at, int64_t count, int64_t behind);
  bool read_file(const char* path);
  bool fill(const Crops& crops, const double* draws, const uint8_t* body, const uint8_t* end, uint8_t* out);
  bool fill_whole(const Crops& crops, const double* draws, uint8_t* out);
  bool fill_from(const Shard& shard, int64_t row, const Crops& crops, const double* draws, uint8_t* out);
  bool fill_segmented(const Shard& shard, int64_t row, const Crops& crops, const double* draws, uint8_t* out);
  void give_back();
};

// Bytes of a file, to the position `behind` of `file`.
bool Chunks::read(int handle, int64_t at, int64_t count, int64_t behind) {
  file.resize(behind + count);
  while (count > 0) {
    ssize_t got = pread(handle, file.data() + behind, count, at);
    if (got <= 0) return false;
    at += got, behind += got, count -= got;
  }
  return true;
}

bool Chunks::read_file(const char* path) {
  int handle = open(path, O_RDONLY | O_CLOEXEC);
  if (handle < 0) return false;
  struct stat status;
  bool regular = fstat(handle, &status) == 0 && S_ISREG(status.st_mode);
  bool done = regular && read(handle, 0, status.st_size, 0);
  close(handle);
  return done;
}

// After the header was read: the crop that was drawn, resized.
bool Chunks::fill(
    const Crops& crops, const double* draws, const uint8_t* body, const uint8_t* end, uint8_t* out) {
  Window crop = draw_window(decoder.width, decoder.height, crops, draws);
  // libjpeg may reduce an image while it decodes; here nothing does.
  if (crops.scaled && std::min(crop.width, crop.height) >= 2 * crops.size) return false;
  window.resize(3 * crop.width * crop.height + SPARE);
  Table table = {};
  if (!edges.empty())
    table = {edges[0], edges[1], edges[2], edges[3], edges[4], edges[5], edges[6], edges.data() + 7};
  if (!decoder.decode(body, end, edges.empty() ? nullptr : &table, crop, window.data())) return false;
  bool flipped = draws[crops.flip_at] < crops.flip;
  resizer.resize(window.data(), crop.height, crop.width, out, crops.size, crops.bicubic, flipped);
  return true;
}

// The image in `file`, by the rules of lazy_image.
bool Chunks::fill_whole(const Crops& crops, const double* draws, uint8_t* out) {
  edges.clear();
  const uint8_t *at = file.data(), *end = at + file.size();
  if (end - at < 4 || word_at(end - 2) != 0xFFD9) return false;
  const uint8_t* body = decoder.read_header(at, end);
  if (!body || (crops.exif && may_be_turned(at, body))) return false;
  int64_t pixels = decoder.width * decoder.height, bytes = end - at;
  if (pixels > MOST_PIXELS || pixels > std::max(SMALL_PIXELS, bytes * MOST_PIXELS_PER_BYTE)) return false;
  return fill(crops, draws, body, end, out);
}

bool Chunks::fill_from(const Shard& shard, int64_t row, const Crops& crops, const double* draws, uint8_t* out) {
  if (row < 0 || row >= shard.rows || shard.offset[row] > static_cast<uint64_t>(shard.bytes)) return false;
  if (shard.size[row] > shard.bytes - shard.offset[row]) return false;
  if (shard.scan_at[row]) return fill_segmented(shard, row, crops, draws, out);
  return read(shard.handle, shard.offset[row], shard.size[row], 0) && fill_whole(crops, draws, out);
}

// Reads only the segments that the crop touches; positions are the table's, which may be damaged.
bool Chunks::fill_segmented(const Shard& shard, int64_t row, const Crops& crops, const double* draws, uint8_t* out) {
  int64_t size = shard.size[row], scan_at = shard.scan_at[row], frame_at = shard.frame_at[row];
  int64_t unit_width = 8 * (shard.mcu[row] >> 4), unit_height = 8 * (shard.mcu[row] & 15);
  int64_t interval = shard.interval[row], width = shard.width[row], height = shard.height[row];
  if (!unit_width || !unit_height || !interval || !width || !height || width > 65500 || height > 65500) return false;
  int64_t rows = (height + unit_height - 1) / unit_height;
  int64_t columns = (width + unit_width * interval - 1) / (unit_width * interval), all = rows * (columns + 1);
  uint64_t rows_at = shard.rows_at[row], within_at = shard.within_at[row];
  if (rows > shard.row_starts_count || rows_at > static_cast<uint64_t>(shard.row_starts_count - rows)) return false;
  if (all > shard.within_count || within_at > static_cast<uint64_t>(shard.within_count - all)) return false;
  if (width * height > MOST_PIXELS || scan_at > size || frame_at + 9 > scan_at) return false;
  if (!read(shard.handle, shard.offset[row], scan_at, 0)) return false;
  // The table knows the size better than a damaged header.
  const uint8_t sides[] = {
      static_cast<uint8_t>(height >> 8), static_cast<uint8_t>(height), static_cast<uint8_t>(width >> 8),
      static_cast<uint8_t>(width)};
  std::memcpy(file.data() + frame_at + 5, sides, 4);
  if (decoder.read_header(file.data(), file.data() + scan_at) != file.data() + scan_at) return false;
  if (decoder.width != width || decoder.height != height) return false;
  if (crops.exif && may_be_turned(file.data(), file.data() + scan_at)) return false;
  // Segments.cut
  Window crop = draw_window(width, height, crops, draws);
  int64_t overlap_x = unit_width > 8, overlap_y = unit_height > 8, segment = unit_width * interval;
  int64_t first = std::max<int64_t>(0, crop.left - overlap_x) / segment;
  int64_t end = std::min(columns, (crop.left + crop.width + overlap_x + segment - 1) / segment);
  int64_t top = std::max<int64_t>(0, crop.top - overlap_y) / unit_height;
  int64_t bottom = std::min(rows, (crop.top + crop.height + overlap_y + unit_height - 1) / unit_height);
  const uint32_t* starts = shard.row_starts + rows_at;
  const uint16_t* within = shard.within + within_at;
  int64_t start = starts[top] + within[top * (columns + 1) + first];
  int64_t stop = starts[bottom - 1] + within[(bottom - 1) * (columns + 1) + end];
  if (start < 0 || start > stop || stop > size) return false;
  edges.assign({first * interval, top, interval, unit_width, unit_height, bottom - top, end - first});
  for (int64_t y = top; y < bottom; y++)
    for (int64_t i = first; i <= end; i++) edges.push_back(starts[y] + within[y * (columns + 1) + i] - start);
  if (!read(shard.handle, shard.offset[row] + start, stop - start, 0)) return false;
  return fill(crops, draws, file.data(), file.data() + file.size(), out);
}

void Chunks::give_back() {
  decoder.give_back();
  for (std::vector<uint8_t>* buffer : {&file, &window, &resizer.between}) decoder.Stream::give_back(*buffer);
}

}  // namespace

// `header` ends with that of the scan. `body` has its entropy-coded bytes: all, or, with a table, some restart
// segments. The table has the MCU in which they begin, how many MCUs they have, the size of an MCU, numbers of rows and
// of segments per row, and for every row where its segments begin and the last one ends. Returns 0, or 1 if libjpeg must
// decode it.
extern "C" int EXPORTED(jpeg_window)(
    const uint8_t* header, int64_t header_bytes, const uint8_t* body, int64_t body_bytes, const int64_t* table,
    int64_t left, int64_t top, int64_t width, int64_t height, uint8_t* out) try {
  static thread_local std::unique_ptr<Decoder> kept(new Decoder);
  Table segments = {};
  if (table) segments = {table[0], table[1], table[2], table[3], table[4], table[5], table[6], table + 7};
  const uint8_t* header_end = header + header_bytes;
  bool done = kept->read_header(header, header_end) == header_end &&
              kept->decode(body, body + body_bytes, table ? &segments : nullptr, {left, top, width, height}, out);
  kept->give_back();
  return done ? 0 : 1;
} catch (const std::bad_alloc&) {
  return 1;
}

// Many training images in one call: read, decoded, cropped, resized and flipped. Image i is the file `paths[i]`, or, if
// there are no paths, row `rows[i]` of `shards[i]`. `draws` has `crops.draws` numbers for each. Images that Python must
// make, for whatever reason, get a 0 in `done`; that they are bad is never decided here.
extern "C" void EXPORTED(jpeg_chunk)(
    const char* const* paths, const Shard* const* shards, const int64_t* rows, int64_t count, const Crops* crops,
    const double* draws, uint8_t* out, uint8_t* done) {
  int64_t bytes = 3 * crops->size * crops->size;
  std::memset(done, 0, count);
  try {
    static thread_local std::unique_ptr<Chunks> kept(new Chunks);
    for (int64_t i = 0; i < count; i++, out += bytes, draws += crops->draws) {
      try {
        done[i] = paths ? kept->read_file(paths[i]) && kept->fill_whole(*crops, draws, out)
                        : kept->fill_from(*shards[i], rows[i], *crops, draws, out);
      } catch (const std::bad_alloc&) {
        done[i] = 0;
      }
      kept->give_back();
    }
  } catch (const std::bad_alloc&) {
    return;
  }
}

// For comparison with PyTorch: resizes `in`, which is changed and has 64 bytes behind its pixels.
extern "C" void EXPORTED(resize_square)(
    uint8_t* in, int64_t height, int64_t width, uint8_t* out, int64_t size, int64_t bicubic, int64_t flipped) {
  Resizer().resize(in, height, width, out, size, bicubic, flipped);
}
