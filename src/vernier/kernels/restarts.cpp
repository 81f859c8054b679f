// Adds restart markers to a baseline JPEG without loss: the file of `jpegtran -copy none -optimize -restart NB`.
//
// Coefficients are decoded, counted, and coded again in one scan with Huffman codes made for them. Comments such as
// "jchuff.c" name the file of libjpeg-turbo whose decisions are repeated here, so that files are identical to the byte.
// Whatever is unusual or damaged is refused, also some that libjpeg repairs without a warning.

#include <memory>
#include <new>

#include "stream.h"

namespace {

constexpr int LONGEST_CODE = 16;
constexpr int LONGEST_BEFORE_LIMIT = 32;     // jchuff.c: MAX_CLEN
constexpr int LARGEST_DC = 11;               // bits of a difference; the decoder's tables have no AC of more than 10
constexpr int MOST_BLOCKS = 10;              // of an MCU
constexpr int64_t LARGEST_SIDE = 65500;      // jmorecfg.h: JPEG_MAX_DIMENSION
constexpr int SIXTEEN_ZEROS = 0xF0;

struct Block {
  uint64_t present;  // bit k: coefficient k, in zigzag order, is not zero
  uint32_t first;    // where their values begin in `values`
  int16_t dc;
};

inline int size_of(int value) { return value ? 32 - __builtin_clz(std::abs(value)) : 0; }

// ------------------------------------------------------------------------------------------------------ Huffman codes

struct Table {  // one that is made
  int64_t counts[257] = {};
  uint8_t lengths[256] = {}, per_length[LONGEST_CODE + 1] = {}, symbols[256] = {};
  uint16_t codes[256] = {};
  int total = 0;

  bool make();
  void assign();
};

// jchuff.c: jpeg_gen_optimal_table. Of equal counts the larger symbol is joined first. False if a code gets too long.
bool Table::make() {
  int length[257] = {}, next[257], per[LONGEST_BEFORE_LIMIT + 1] = {};
  int64_t left[257];
  std::copy_n(counts, 257, left);
  std::fill_n(next, 257, -1);
  left[256] = 1;  // a symbol that never occurs gets the code of ones, which JPEG does not allow
  auto smallest = [&](int except) {
    int found = -1;
    for (int i = 0; i <= 256; i++)
      if (left[i] && i != except && (found < 0 || left[i] <= left[found])) found = i;
    return found;
  };
  for (;;) {
    int one = smallest(-1), two = smallest(one);
    if (two < 0) break;
    left[one] += left[two], left[two] = 0;
    // Each tree is a chain of symbols, which all become one bit longer.
    int last = one;
    for (;; last = next[last]) {
      length[last]++;
      if (next[last] < 0) break;
    }
    next[last] = two;
    for (int i = two; i >= 0; i = next[i]) length[i]++;
  }
  for (int i = 0; i <= 256; i++) {
    if (length[i] > LONGEST_BEFORE_LIMIT) return false;
    if (length[i]) per[length[i]]++;
  }
  // ITU-T T.81, figure K.3: two codes that are too long become one bit shorter, and a shorter one becomes two longer.
  for (int i = LONGEST_BEFORE_LIMIT; i > LONGEST_CODE; i--)
    while (per[i] > 0) {
      int shorter = i - 2;
      while (!per[shorter]) shorter--;
      per[i] -= 2, per[i - 1]++, per[shorter + 1] += 2, per[shorter]--;
    }
  int longest = LONGEST_CODE;
  while (!per[longest]) longest--;
  per[longest]--;  // that of the symbol that never occurs
  std::copy_n(per, LONGEST_CODE + 1, per_length);
  total = 0;
  for (int i = 1; i <= LONGEST_BEFORE_LIMIT; i++)
    for (int symbol = 0; symbol < 256; symbol++)
      if (length[symbol] == i) symbols[total++] = symbol;
  assign();
  return true;
}

void Table::assign() {
  int code = 0, at = 0;
  for (int length = 1; length <= LONGEST_CODE; length++, code <<= 1)
    for (int i = 0; i < per_length[length]; i++, code++, at++)
      codes[symbols[at]] = code, lengths[symbols[at]] = length;
}

// -------------------------------------------------------------------------------------------------------------- output

struct Counter {  // the first pass: how often each symbol occurs
  void begin_block() {}
  void put(Table& table, int symbol, int, int) { table.counts[symbol]++; }
  void restart(int64_t) {}
};

struct Writer {  // the second pass
  static constexpr size_t ROOM = 1024;  // more than a block or a table needs, with its escaped bytes
  std::vector<uint8_t>& out;            // larger than what is written
  uint8_t* at;
  uint64_t word = 0;  // its last `held` bits are not written yet
  int held = 0;

  explicit Writer(std::vector<uint8_t>& out) : out(out), at(out.data()) {}
  size_t size() const { return at - out.data(); }
  void make_room() {
    if (out.size() - size() >= ROOM) return;
    size_t written = size();
    out.resize(2 * out.size() + 2 * ROOM);
    at = out.data() + written;
  }
  void begin_block() { make_room(); }
  void byte(int value) { *at++ = value; }
  void number(int value) { byte(value >> 8), byte(value & 255); }
  void text(const char* from, int count) { std::memcpy(at, from, count), at += count; }
  void marker(int which, int length) { make_room(), byte(0xFF), byte(which), number(length); }

  void put(Table& table, int symbol, int size, int value) {  // at most 27 bits, after fewer than 32
    int bits = (value < 0 ? value - 1 : value) & ((1 << size) - 1), count = table.lengths[symbol] + size;
    word = word << count | static_cast<uint32_t>(table.codes[symbol] << size | bits);
    held += count;
    if (held < 32) return;
    held -= 32;
    uint32_t four = word >> held;
    // Whether a byte is 0xFF: its complement is 0, so that taking 1 from each byte borrows in it.
    if (((~four - 0x01010101u) & four & 0x80808080u) == 0) {
      byte(four >> 24), byte(four >> 16 & 255), byte(four >> 8 & 255), byte(four & 255);
      return;
    }
    for (int shift = 24; shift >= 0; shift -= 8) escaped(four >> shift & 255);
  }
  void escaped(int value) {
    byte(value);
    if (value == 0xFF) byte(0);
  }
  void fill() {  // the last byte with ones
    int missing = -held & 7;
    word = word << missing | ((1 << missing) - 1);
    for (held += missing; held; held -= 8) escaped(word >> (held - 8) & 255);
  }
  void restart(int64_t number) { make_room(), fill(), byte(0xFF), byte(0xD0 + number % 8); }
};

struct Rewriter : Stream {
  std::vector<Block> blocks[3];  // by component, in rows; those that only fill up an MCU are not kept
  std::vector<int16_t> values;   // larger than the `value_count` that there are
  size_t value_count = 0;
  std::vector<uint8_t> out;      // kept for the next image
  size_t out_bytes = 0;
  Table dcs[2], acs[2];          // of the first component and of the others, if those have their own
  int tables = 1;

  bool rewrite(const uint8_t* at, const uint8_t* end, int64_t interval_mcus);
  bool read_image(const uint8_t* at, const uint8_t* end);
  const uint8_t* read_blocks(const uint8_t* at, const uint8_t* end);
  bool read_unit(Component& component, std::vector<Block>& to, int64_t column, int64_t row, bool alone);
  bool read_block(Component& component, Block& block);
  bool can_be_written() const;
  int table_of(size_t component) const { return component && tables == 2; }
  template <class Sink>
  bool code(Sink& sink, int64_t interval_mcus);
  template <class Sink>
  bool code_block(Sink& sink, const Block& block, int difference, Table& dc_codes, Table& ac_codes);
  void write_headers(Writer& writer, int64_t interval_mcus) const;
  void write_frame(Writer& writer) const;
};

// --------------------------------------------------------------------------------------------------------------- input

bool Rewriter::rewrite(const uint8_t* at, const uint8_t* end, int64_t interval_mcus) {
  if (interval_mcus < 1 || interval_mcus > 0xFFFF || !read_image(at, end)) return false;
  for (int i = 0; i < 2; i++) dcs[i] = acs[i] = {};
  tables = colors() == YCC ? 2 : 1;  // jcparam.c
  Counter counter;
  if (!code(counter, interval_mcus)) return false;
  for (int i = 0; i < tables; i++)
    if (!dcs[i].make() || !acs[i].make()) return false;
  Writer writer(out);
  write_headers(writer, interval_mcus);
  code(writer, interval_mcus);
  writer.make_room(), writer.fill();
  writer.byte(0xFF), writer.byte(0xD9);
  out_bytes = writer.size();
  return true;
}

// All scans up to the end of the image. Each component must be in one of them.
bool Rewriter::read_image(const uint8_t* at, const uint8_t* end) {
  forget();
  value_count = 0;
  for (std::vector<Block>& each : blocks) each.clear();
  if (end - at < 2 || word_at(at) != 0xFFD8) return false;
  for (at = read_markers(at + 2, end); at && !ended; at = read_markers(at, end)) {
    if (!can_be_written()) return false;
    for (int i : scan) {
      if (!blocks[i].empty()) return false;
      blocks[i].resize(components[i].blocks_across() * components[i].blocks_down());
    }
    if (!(at = read_blocks(at, end))) return false;
  }
  if (!at || components.empty()) return false;
  for (size_t i = 0; i < components.size(); i++)
    if (blocks[i].empty()) return false;
  return true;
}

bool Rewriter::can_be_written() const {
  int count = 0;
  for (const Component& component : components) {
    count += component.across * component.down;
    if (!quantizers_of_bytes(component)) return false;  // the file would not be a baseline JPEG
  }
  return count <= MOST_BLOCKS && std::max(width, height) <= LARGEST_SIDE && colors() != OTHER;
}

// The entropy-coded bytes of a scan. The position of the marker behind them, or null if they are damaged.
const uint8_t* Rewriter::read_blocks(const uint8_t* at, const uint8_t* end) {
  bool alone = scan.size() == 1;  // then an MCU is one block
  int64_t columns = alone ? components[scan[0]].blocks_across() : units_across();
  int64_t rows = alone ? components[scan[0]].blocks_down() : units_down(), count = 0;
  at = open_segment(at, end);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < columns; column++, count++) {
      bool restarts = interval && count && count % interval == 0;
      if (restarts && !(at = next_segment(at, end, count / interval))) return nullptr;
      for (int i : scan)
        if (!read_unit(components[i], blocks[i], column, row, alone)) return nullptr;
    }
  return close_segment() ? at : nullptr;
}

bool Rewriter::read_unit(Component& component, std::vector<Block>& to, int64_t column, int64_t row, bool alone) {
  int across = alone ? 1 : component.across, down = alone ? 1 : component.down;
  for (int y = 0; y < down; y++)
    for (int x = 0; x < across; x++) {
      int64_t left = column * across + x, top = row * down + y;
      Block block;
      if (!read_block(component, block)) return false;
      if (left < component.blocks_across() && top < component.blocks_down())
        to[top * component.blocks_across() + left] = block;
    }
  return true;
}

bool Rewriter::read_block(Component& component, Block& block) {
  int run, value;
  bits.refill();
  if (!find_next(bits, dc[component.dc], false, run, value)) return false;
  int first = component.predicted += value;
  if (values.size() < value_count + 64) values.resize(2 * values.size() + 4096);
  int16_t* next = values.data() + value_count;
  block = {0, static_cast<uint32_t>(value_count), static_cast<int16_t>(first)};
  const Codes& codes = ac[component.ac];
  Bits own = bits;  // a copy stays in registers
  for (int k = 0; k < 63;) {
    own.refill();
    if (!find_next(own, codes, true, run, value)) return false;
    if (run == END_OF_BLOCK) break;
    k += run + 1;
    if (k > 63) return false;
    if (!value) continue;  // sixteen zeros
    block.present |= 1ull << k;
    *next++ = value;
  }
  bits = own;
  value_count = next - values.data();
  return bits.end() <= segment_end && first == block.dc && value_count < UINT32_MAX;
}

// ------------------------------------------------------------------------------------------------------------- coding

// One scan of all components. False if a difference is larger than Huffman codes of 8-bit images can have.
template <class Sink>
bool Rewriter::code(Sink& sink, int64_t interval_mcus) {
  int64_t count = 0, columns = units_across(), rows = units_down();
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < columns; column++, count++) {
      if (count % interval_mcus == 0) {
        if (count) sink.restart(count / interval_mcus - 1);
        for (Component& component : components) component.predicted = 0;
      }
      for (size_t i = 0; i < components.size(); i++) {
        Component& component = components[i];
        int table = table_of(i);
        for (int y = 0; y < component.down; y++)
          for (int x = 0; x < component.across; x++) {
            int64_t left = column * component.across + x, top = row * component.down + y;
            bool inside = left < component.blocks_across() && top < component.blocks_down();
            // jctrans.c: what fills up an MCU repeats the DC coefficient before it.
            Block filling = {0, 0, static_cast<int16_t>(component.predicted)};
            const Block& block = inside ? blocks[i][top * component.blocks_across() + left] : filling;
            if (!code_block(sink, block, block.dc - component.predicted, dcs[table], acs[table])) return false;
            component.predicted = block.dc;
          }
      }
    }
  return true;
}

template <class Sink>
bool Rewriter::code_block(Sink& sink, const Block& block, int difference, Table& dc_codes, Table& ac_codes) {
  int size = size_of(difference), last = 0;
  if (size > LARGEST_DC) return false;
  sink.begin_block();
  sink.put(dc_codes, size, size, difference);
  const int16_t* value = values.data() + block.first;
  for (uint64_t left = block.present; left; left &= left - 1, value++) {
    int k = __builtin_ctzll(left), run = k - last - 1;
    for (; run > 15; run -= 16) sink.put(ac_codes, SIXTEEN_ZEROS, 0, 0);
    size = size_of(*value);
    sink.put(ac_codes, run << 4 | size, size, *value);
    last = k;
  }
  if (last < 63) sink.put(ac_codes, 0, 0, 0);
  return true;
}

// ------------------------------------------------------------------------------------------------------------- headers

// jcmarker.c: write_file_header, write_frame_header, write_scan_header.
void Rewriter::write_headers(Writer& writer, int64_t interval_mcus) const {
  writer.make_room(), writer.byte(0xFF), writer.byte(0xD8);
  if (colors() == RGB) {
    writer.marker(0xEE, 14);
    writer.text("Adobe\0\144\0\0\0\0\0", 12);  // version 100, no color transform
  } else {
    static constexpr Jfif DEFAULT = {true, {1, 1}, {0, 0, 1, 0, 1}};
    const Jfif& from = jfif.present ? jfif : DEFAULT;
    writer.marker(0xE0, 16);
    writer.text("JFIF", 5);
    for (int value : from.version) writer.byte(value);
    for (int value : from.density) writer.byte(value);
    writer.number(0);  // no thumbnail
  }
  write_frame(writer);
  for (int i = 0; i < tables; i++)
    for (bool is_ac : {false, true}) {
      const Table& table = (is_ac ? acs : dcs)[i];
      writer.marker(0xC4, 19 + table.total);
      writer.byte(is_ac << 4 | i);
      for (int length = 1; length <= LONGEST_CODE; length++) writer.byte(table.per_length[length]);
      for (int symbol = 0; symbol < table.total; symbol++) writer.byte(table.symbols[symbol]);
    }
  writer.marker(0xDD, 4);
  writer.number(static_cast<int>(interval_mcus));
  int count = static_cast<int>(components.size());
  writer.marker(0xDA, 6 + 2 * count);
  writer.byte(count);
  for (int i = 0; i < count; i++) writer.byte(components[i].id), writer.byte(table_of(i) * 0x11);
  for (int value : {0, 63, 0}) writer.byte(value);
}

void Rewriter::write_frame(Writer& writer) const {
  bool written[4] = {};
  for (const Component& component : components) {
    int number = component.quantizer;
    if (written[number]) continue;
    written[number] = true;
    writer.marker(0xDB, 67);
    writer.byte(number);
    for (int i = 0; i < 64; i++) writer.byte(quantizers[number][POSITIONS.at[i]]);
  }
  int count = static_cast<int>(components.size());
  writer.marker(0xC0, 8 + 3 * count);
  writer.byte(8), writer.number(static_cast<int>(height)), writer.number(static_cast<int>(width)), writer.byte(count);
  for (const Component& component : components)
    writer.byte(component.id), writer.byte(component.across << 4 | component.down), writer.byte(component.quantizer);
}

}  // namespace

// The image with a restart marker every `interval` MCUs; `out` is valid until this thread calls again. Returns its size
// in bytes, or 0 if it is not rewritten.
extern "C" int64_t EXPORTED(jpeg_restarts)(
    const uint8_t* image, int64_t bytes, int64_t interval, const uint8_t** out) try {
  static thread_local std::unique_ptr<Rewriter> kept(new Rewriter);
  size_t most = std::max(kept->out.capacity(), 2 * kept->values.capacity());
  for (const std::vector<Block>& each : kept->blocks) most = std::max(most, sizeof(Block) * each.capacity());
  if (most > KEPT) kept.reset(new Rewriter);
  if (!kept->rewrite(image, image + bytes, interval)) return 0;
  *out = kept->out.data();
  return static_cast<int64_t>(kept->out_bytes);
} catch (const std::bad_alloc&) {
  return 0;
}
