// The compiled JPEG code under libFuzzer, AddressSanitizer and UBSan, compared with libjpeg-turbo in the same process.
//
// `python -m tests.fuzz.native` builds and runs it. One input is one file. Of each: the whole image, two windows, two
// tables of restart segments (a true and a damaged one), and the rewriting with restart markers. Abort on: a window
// that libjpeg refuses, another pixel, a rewritten file with other pixels. Mutations follow the grammar of JPEG, since
// changed bytes hardly ever make a valid table.

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <jpeglib.h>

extern "C" {
int jpeg_window_plain(
    const uint8_t*, int64_t, const uint8_t*, int64_t, const int64_t*, int64_t, int64_t, int64_t, int64_t, uint8_t*);
int64_t jpeg_restarts_plain(const uint8_t*, int64_t, int64_t, const uint8_t**);
size_t LLVMFuzzerMutate(uint8_t*, size_t, size_t);
}

namespace {

typedef std::vector<uint8_t> Bytes;

constexpr int64_t LARGEST_PIXELS = 1 << 15;  // whole images: time goes into many inputs, not into large ones
constexpr int64_t WINDOW_PIXELS = 64;        // a side of windows in images that claim more

struct Dice {  // the same for the same input
  uint64_t state;
  uint64_t next() {
    state += 0x9E3779B97F4A7C15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9, z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t end) { return end > 1 ? static_cast<int64_t>(next() % end) : 0; }
  template <class T, size_t N>
  T choose(const T (&from)[N]) { return from[below(N)]; }
};

struct Counts {
  uint64_t inputs, windows, accepted, compared, rewritten, tables;
  ~Counts() {
    fprintf(stderr, "COUNTS %llu inputs %llu windows %llu accepted %llu compared %llu tables %llu rewritten\n",
            (unsigned long long)inputs, (unsigned long long)windows, (unsigned long long)accepted,
            (unsigned long long)compared, (unsigned long long)tables, (unsigned long long)rewritten);
  }
} counts;

void fail(const char* what) {
  fprintf(stderr, "DIFFERENCE: %s\n", what);
  abort();
}

// ---------------------------------------------------------------------------------------------------------- the header

struct Header {  // as data/decoding/jpeg_slicing.py reads it
  bool good = false;
  int64_t width = 0, height = 0, scan_at = 0, interval = 0;
  int count = 0, across = 1, down = 1;
};

// Others are decoded by Pillow alone, and never asked about here.
bool is_common(const uint8_t* factors, int count) {
  if (count == 1) return true;
  int luma = factors[0], blue = factors[3], red = factors[6];
  if (blue == 0x11 && red == 0x11)
    return luma == 0x11 || luma == 0x21 || luma == 0x22 || luma == 0x12 || luma == 0x41 || luma == 0x14;
  if (blue == luma && red == luma) return true;
  return luma == 0x22 && blue == red && (blue == 0x12 || blue == 0x21);
}

Header read_header(const uint8_t* data, int64_t size) {
  Header header;
  int64_t at = 2, frame_at = 0;
  if (size < 4 || data[0] != 0xFF || data[1] != 0xD8) return header;
  while (at + 4 < size) {
    if (data[at] == 0xFF && data[at + 1] == 0xFF) {
      at++;
      continue;
    }
    if (data[at] != 0xFF) return header;
    int marker = data[at + 1], length = data[at + 2] << 8 | data[at + 3];
    if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) frame_at = at;
    if (marker == 0xDD && at + 6 <= size) header.interval = data[at + 4] << 8 | data[at + 5];
    if (marker == 0xDA) break;
    at += 2 + length;
  }
  if (at + 4 >= size || !frame_at || frame_at + 10 > size) return header;
  header.scan_at = at + 2 + (data[at + 2] << 8 | data[at + 3]);
  const uint8_t* frame = data + frame_at;
  header.height = frame[5] << 8 | frame[6], header.width = frame[7] << 8 | frame[8], header.count = frame[9];
  bool sequential = (frame[1] == 0xC0 || frame[1] == 0xC1) && frame[4] == 8;
  if (!sequential || (header.count != 1 && header.count != 3) || header.scan_at > size || !header.width ||
      !header.height || frame_at + 10 + 3 * header.count > size)
    return header;
  for (int i = 0; i < header.count && header.count > 1; i++) {
    int across = frame[11 + 3 * i] >> 4, down = frame[11 + 3 * i] & 15;
    if (across < 1 || across > 4 || down < 1 || down > 4) return header;
    header.across = std::max(header.across, across), header.down = std::max(header.down, down);
  }
  header.good = data[size - 2] == 0xFF && data[size - 1] == 0xD9 && is_common(frame + 11, header.count);
  return header;
}

// ------------------------------------------------------------------------------------------------------ libjpeg-turbo

struct Errors {
  jpeg_error_mgr manager;
  jmp_buf back;
  long warnings;
};

void on_error(j_common_ptr info) { longjmp(reinterpret_cast<Errors*>(info->err)->back, 1); }
void on_message(j_common_ptr info, int level) { reinterpret_cast<Errors*>(info->err)->warnings += level < 0; }

// The first `rows` rows as RGB; -1 if it is refused, else the number of warnings. `out` null: the header only.
long decode_with_libjpeg(const uint8_t* data, size_t size, int64_t width, int64_t rows, uint8_t* out) {
  jpeg_decompress_struct info;
  Errors errors;
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = on_error, errors.manager.emit_message = on_message, errors.warnings = 0;
  if (setjmp(errors.back)) {
    jpeg_destroy_decompress(&info);
    return -1;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, data, size);
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  if (out && info.output_width != width) longjmp(errors.back, 1);
  while (out && info.output_scanline < rows && info.output_scanline < info.output_height) {
    JSAMPROW row = out + 3 * width * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_abort_decompress(&info);
  jpeg_destroy_decompress(&info);
  return errors.warnings;
}

// ---------------------------------------------------------------------------------------------------------- one input

struct Area {
  int64_t left, top, width, height;
};

Area choose_area(const Header& header, Dice& dice, bool whole) {
  if (whole && header.width * header.height <= LARGEST_PIXELS) return {0, 0, header.width, header.height};
  Area area;
  area.width = 1 + dice.below(std::min(WINDOW_PIXELS, header.width));
  area.height = 1 + dice.below(std::min(WINDOW_PIXELS, header.height));
  area.left = dice.below(header.width - area.width + 1), area.top = dice.below(header.height - area.height + 1);
  return area;
}

// Copies of exactly this size, so that AddressSanitizer sees a byte read too far.
std::unique_ptr<uint8_t[]> copy_of(const uint8_t* from, int64_t size) {
  std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  if (size) memcpy(copy.get(), from, size);
  return copy;
}

// Where restart segments are, as the table of a shard has it; damaged on request.
std::vector<int64_t> table_of(const Header& header, const uint8_t* body, int64_t size, Dice& dice, bool damaged) {
  int64_t across = (header.width + 8 * header.across - 1) / (8 * header.across);
  int64_t down = (header.height + 8 * header.down - 1) / (8 * header.down);
  if (!header.interval || across % header.interval || across * down > 4096) return {};
  int64_t per_row = across / header.interval, at = 0;
  std::vector<int64_t> table = {0, 0, header.interval, 8 * header.across, 8 * header.down, down, per_row};
  for (int64_t row = 0; row < down; row++) {
    table.push_back(at);
    for (int64_t i = 0; i < per_row; i++) {
      while (at + 1 < size && !(body[at] == 0xFF && body[at + 1] >= 0xD0 && body[at + 1] <= 0xD9)) at++;
      at = std::min(at + 2, size);
      table.push_back(at);
    }
  }
  // Rows and segments stay: they say how long the table is, and Vernier makes them from the table's shape.
  for (int64_t i = damaged ? 1 + dice.below(3) : 0; i > 0; i--) {
    int64_t place = dice.below(table.size());
    if (place == 5 || place == 6) continue;
    const int64_t values[] = {0, -1, 1, size, size + 1, INT64_MAX, INT64_MIN, table[place] + 1, table[place] - 1};
    table[place] = dice.choose(values);
  }
  return table;
}

void try_windows(const uint8_t* data, int64_t size, const Header& header, Dice& dice) {
  auto head = copy_of(data, header.scan_at);
  int64_t body_size = size - header.scan_at, pixels = header.width * header.height;
  auto body = copy_of(data + header.scan_at, body_size);
  std::unique_ptr<uint8_t[]> theirs;
  int64_t theirs_rows = 0;
  long warnings = 0;
  for (int i = 0; i < 5; i++) {
    std::vector<int64_t> table;
    if (i >= 3 && (table = table_of(header, body.get(), body_size, dice, i == 4)).empty()) continue;
    Area area = choose_area(header, dice, i == 0 || i == 3);
    int64_t bytes = 3 * area.width * area.height;
    std::unique_ptr<uint8_t[]> own(new uint8_t[bytes]);
    counts.windows++, counts.tables += i >= 3;
    if (jpeg_window_plain(
            head.get(), header.scan_at, body.get(), body_size, i >= 3 ? table.data() : nullptr, area.left, area.top,
            area.width, area.height, own.get()))
      continue;
    counts.accepted++;
    // What follows a cut segment is no JPEG that libjpeg would see in this way: memory only.
    if (!header.good || i == 4) continue;
    if (pixels > LARGEST_PIXELS) {
      if (decode_with_libjpeg(data, size, header.width, 0, nullptr) < 0) fail("accepted by the compiled decoder alone");
      continue;
    }
    int64_t bottom = area.top + area.height;
    if (!theirs || theirs_rows < bottom) {
      theirs.reset(new uint8_t[3 * pixels]);
      theirs_rows = i == 0 || i == 3 ? header.height : bottom;
      warnings = decode_with_libjpeg(data, size, header.width, theirs_rows, theirs.get());
      if (warnings < 0) fail("accepted by the compiled decoder alone");
    }
    // With a table, the numbers of restart markers do not count, and libjpeg repairs what it takes for a wrong one.
    if (i == 3 && warnings) continue;
    counts.compared++;
    for (int64_t y = 0; y < area.height; y++)
      if (memcmp(own.get() + 3 * area.width * y, theirs.get() + 3 * (header.width * (area.top + y) + area.left),
                 3 * area.width))
        fail("other pixels than libjpeg-turbo");
  }
}

void try_restarts(const uint8_t* data, int64_t size, const Header& header, Dice& dice) {
  const int64_t intervals[] = {1, 2, 3, 4, 65535};
  // As compat/preparing/restarts.py refuses them before: memory for so many blocks is no error of this code.
  if (header.width * header.height > std::max<int64_t>(1 << 24, 10000 * size)) return;
  auto whole = copy_of(data, size);
  const uint8_t* out = nullptr;
  int64_t out_size = jpeg_restarts_plain(whole.get(), size, dice.choose(intervals), &out);
  if (!out_size) return;
  counts.rewritten++;
  int64_t pixels = header.width * header.height;
  if (!header.good || pixels > LARGEST_PIXELS) return;
  std::unique_ptr<uint8_t[]> before(new uint8_t[3 * pixels]), after(new uint8_t[3 * pixels]);
  memset(before.get(), 0, 3 * pixels), memset(after.get(), 0, 3 * pixels);
  if (decode_with_libjpeg(data, size, header.width, header.height, before.get()) < 0)
    fail("rewritten, and refused by libjpeg");
  if (decode_with_libjpeg(out, out_size, header.width, header.height, after.get())) fail("rewritten with damage");
  if (memcmp(before.get(), after.get(), 3 * pixels)) fail("rewritten to other pixels");
}

// ---------------------------------------------------------------------------------------------------------- mutations

struct Segment {
  int kind;
  Bytes content;
};

struct Parts {
  std::vector<Segment> segments;
  Bytes coded;
  bool read(const uint8_t* data, size_t size) {
    size_t at = 2;
    while (at + 4 <= size && data[at] == 0xFF) {
      size_t length = data[at + 2] << 8 | data[at + 3];
      if (length < 2 || at + 2 + length > size) return false;
      segments.push_back({data[at + 1], Bytes(data + at + 4, data + at + 2 + length)});
      at += 2 + length;
      if (segments.back().kind == 0xDA) {
        coded.assign(data + at, data + size);
        return true;
      }
    }
    return false;
  }
  Bytes join() const {
    Bytes out = {0xFF, 0xD8};
    for (const Segment& segment : segments) {
      size_t length = segment.content.size() + 2;
      out.insert(out.end(), {0xFF, static_cast<uint8_t>(segment.kind), static_cast<uint8_t>(length >> 8),
                             static_cast<uint8_t>(length)});
      out.insert(out.end(), segment.content.begin(), segment.content.end());
    }
    out.insert(out.end(), coded.begin(), coded.end());
    return out;
  }
  Segment* find(Dice& dice, int kind) {
    std::vector<Segment*> found;
    for (Segment& segment : segments) {
      bool frame = segment.kind >= 0xC0 && segment.kind <= 0xCB && segment.kind != 0xC4 && segment.kind != 0xC8;
      if (segment.kind == kind || (kind == 0xC0 && frame)) found.push_back(&segment);
    }
    return found.empty() ? nullptr : found[dice.below(found.size())];
  }
};

Bytes new_huffman(Dice& dice) {  // complete, with the code of only ones, too many codes, too few, wrong symbols
  const uint8_t heads[] = {0x00, 0x01, 0x10, 0x11, 0x02, 0x13, 0x14, 0x20};
  Bytes out = {dice.choose(heads)};
  int free = 1, total = 0;
  for (int length = 0; length < 16; length++) {
    free *= 2;
    int most = std::max(0, std::min({free, 255, 256 - total}));
    int count = dice.below(2) ? 0 : dice.below(2) ? dice.below(most + 1) : std::max(0, most - 1);
    if (!dice.below(48)) count = dice.below(256);
    out.push_back(count), free -= count, total += count;
  }
  for (int i = 0; i < total && i < 400; i++) out.push_back(dice.below(2) ? i % 12 : dice.below(256));
  return out;
}

void change_parts(Parts& parts, Dice& dice) {
  const int frames[] = {0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA};
  const uint8_t factors[] = {0x00, 0x01, 0x11, 0x12, 0x21, 0x22, 0x31, 0x41, 0x44, 0x51};
  const uint8_t numbers[] = {0, 1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 63, 64, 255};
  const int sides[] = {0, 1, 2, 3, 7, 8, 9, 16, 17, 24, 33, 65500, 65501, 65535};
  Segment* at;
  switch (dice.below(12)) {
    case 0: case 1:  // a code more or fewer
      if ((at = parts.find(dice, 0xC4)) && at->content.size() > 17) {
        at->content[1 + dice.below(16)] += dice.below(3) - 1;
        if (dice.below(2)) at->content.push_back(dice.below(256));
      }
      break;
    case 2:
      if ((at = parts.find(dice, 0xC4))) at->content = new_huffman(dice);
      break;
    case 3:
      if ((at = parts.find(dice, 0xC4)) && at->content.size() > 17)  // another symbol
        at->content[17 + dice.below(at->content.size() - 17)] = dice.below(256);
      break;
    case 4:
      if ((at = parts.find(dice, 0xC0))) at->kind = dice.choose(frames);
      break;
    case 5:
      if ((at = parts.find(dice, 0xC0)) && at->content.size() > 5) {
        int place = 1 + 2 * dice.below(2), side = dice.choose(sides);
        at->content[place] = side >> 8, at->content[place + 1] = side;
      }
      break;
    case 6:
      if ((at = parts.find(dice, 0xC0)) && at->content.size() > 8) {
        size_t place = 7 + 3 * dice.below((at->content.size() - 6) / 3);
        if (place < at->content.size()) at->content[place] = dice.choose(factors);
      }
      break;
    case 7:
      if ((at = parts.find(dice, 0xC0)) && !at->content.empty()) at->content[dice.below(at->content.size())] = dice.below(16);
      break;
    case 8:
      if ((at = parts.find(dice, 0xDA)) && !at->content.empty())
        at->content[dice.below(at->content.size())] = dice.choose(numbers);
      break;
    case 9:
      if ((at = parts.find(dice, 0xDB)) && !at->content.empty()) {
        at->content[dice.below(at->content.size())] = dice.choose(numbers);
        if (!dice.below(5)) at->content.resize(dice.below(at->content.size()));
      }
      break;
    case 10: {
      const int kinds[] = {0xDD, 0xDD, 0xFE, 0xEE, 0xE0, 0xCC, 0xC4, 0xDB, 0xC0};
      Segment added = {dice.choose(kinds), {}};
      const int intervals[] = {0, 1, 2, 3, 4, 65535};
      int interval = dice.choose(intervals);
      if (added.kind == 0xDD) added.content = {static_cast<uint8_t>(interval >> 8), static_cast<uint8_t>(interval)};
      if (added.kind == 0xEE)
        added.content = {'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, static_cast<uint8_t>(dice.below(4))};
      if (added.kind == 0xE0)
        added.content = {'J', 'F', 'I', 'F', 0, static_cast<uint8_t>(dice.below(3)), 1, 0, 0, 1, 0, 1, 0, 0};
      if (added.kind == 0xC4) added.content = new_huffman(dice);
      if (added.kind == 0xC0 && (at = parts.find(dice, 0xC0))) added.content = at->content;
      parts.segments.insert(parts.segments.begin() + dice.below(parts.segments.size()), added);
      break;
    }
    default:
      if (parts.segments.size() > 2) {
        size_t place = dice.below(parts.segments.size() - 1);
        if (dice.below(2)) parts.segments.erase(parts.segments.begin() + place);
        else std::swap(parts.segments[place], parts.segments[dice.below(parts.segments.size() - 1)]);
      }
  }
}

void change_coded(Bytes& coded, Dice& dice) {
  if (coded.size() < 3) return;
  const uint8_t values[] = {0, 255, 0xD0, 0xD1, 0xD7, 0xD9, 0x7F, 0x80};
  for (int64_t i = 1 + dice.below(3); i > 0; i--) {
    size_t at = dice.below(coded.size() - 2);
    switch (dice.below(5)) {
      case 0: coded[at] ^= 1 << dice.below(8); break;
      case 1: coded[at] = dice.choose(values); break;
      case 2: coded[at] = dice.below(256); break;
      case 3: coded.insert(coded.begin() + at, {0xFF, static_cast<uint8_t>(0xD0 + dice.below(8))}); break;
      default: coded.erase(coded.begin() + at, coded.begin() + std::min(coded.size() - 2, at + 1 + dice.below(20)));
    }
    if (coded.size() < 3) return;
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  Dice dice = {seed};
  Parts parts;
  if (size < 4 || !dice.below(4) || !parts.read(data, size)) return LLVMFuzzerMutate(data, size, most);
  if (dice.below(3))
    for (int64_t i = 1 + dice.below(3); i > 0; i--) change_parts(parts, dice);
  else
    change_coded(parts.coded, dice);
  Bytes out = parts.join();
  if (out.size() > most) return LLVMFuzzerMutate(data, size, most);
  if (dice.below(16)) out[out.size() - 2] = 0xFF, out[out.size() - 1] = 0xD9;
  memcpy(data, out.data(), out.size());
  return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  counts.inputs++;
  uint64_t mark = 0xCBF29CE484222325;  // FNV-1a
  for (size_t i = 0; i < size; i++) mark = (mark ^ data[i]) * 0x100000001B3;
  Dice dice = {mark};
  Header header = read_header(data, size);
  if (header.width && header.height && header.scan_at && header.scan_at <= static_cast<int64_t>(size))
    try_windows(data, size, header, dice);
  try_restarts(data, size, header, dice);
  return 0;
}
