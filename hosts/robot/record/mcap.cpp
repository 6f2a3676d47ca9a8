// SPDX-License-Identifier: Apache-2.0
// The file: magic, Header, then per chunk a Chunk and its MessageIndex records, DataEnd; the
// summary: all Schema and Channel records again, Statistics, ChunkIndex records, Footer; magic. A
// record is an opcode, a 64-bit length and its content; all numbers are little-endian, texts have a
// 32-bit length.
#include "robot/record/mcap.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/write_advice.hpp>

#include "robot/record/crc32.hpp"

namespace frt::host {
namespace {

constexpr std::string_view kMagic("\x89MCAP0\r\n", 8);
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

enum Opcode : uint8_t {
  kHeader = 1,
  kFooter = 2,
  kSchema = 3,
  kChannel = 4,
  kMessage = 5,
  kChunk = 6,
  kMessageIndex = 7,
  kChunkIndex = 8,
  kStatistics = 11,
  kDataEnd = 15
};

class Content {
 public:
  Content& u16(uint64_t value) { return number(value, 2); }
  Content& u32(uint64_t value) { return number(value, 4); }
  Content& u64(uint64_t value) { return number(value, 8); }
  Content& text(std::string_view value) {
    u32(value.size());
    out_ += value;
    return *this;
  }
  Content& raw(std::string_view value) {
    out_ += value;
    return *this;
  }
  std::string record(Opcode opcode) const {
    Content head;
    head.number(opcode, 1).u64(out_.size());
    return head.out_ + out_;
  }
  const std::string& bytes() const { return out_; }

 private:
  Content& number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  std::string out_;
};

}  // namespace

McapWriter::McapWriter(const std::filesystem::path& path) : path_(path.string()) {
  io::Descriptor file = io::create_file(path, "recording");
  file_ = ::fdopen(file.get(), "wb");
  if (!file_) {
    throw Error(FRT_ERR_IO, "cannot write " + path_ + ": " + std::strerror(errno) +
                                std::string(io::write_advice(errno)));
  }
  file.release();
  append(kMagic);
  append(Content().text("").text("frt").record(kHeader));
}

McapWriter::~McapWriter() {
  try {
    close();
  } catch (const Error&) {
    if (file_) std::fclose(file_);
  }
}

void McapWriter::append(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    throw Error(FRT_ERR_IO, "cannot write " + path_ + ": " + std::strerror(errno) +
                                std::string(io::write_advice(errno)));
  }
  data_crc_ = crc32(bytes, data_crc_);
  written_ += bytes.size();
}

uint16_t McapWriter::add_channel(const std::string& topic, const std::string& schema_name,
                                 const std::string& schema) {
  channels_.push_back({topic, schema_name, schema, 0, 0, {}});
  return static_cast<uint16_t>(channels_.size());
}

// Schema n belongs to channel n, ids from 1.
std::string McapWriter::channel_records() const {
  std::string out;
  for (std::size_t i = announced_; i < channels_.size(); ++i) {
    const Channel& channel = channels_[i];
    out += Content()
               .u16(i + 1)
               .text(channel.schema_name)
               .text("jsonschema")
               .text(channel.schema)
               .record(kSchema);
    out += Content().u16(i + 1).u16(i + 1).text(channel.topic).text("json").u32(0).record(kChannel);
  }
  return out;
}

void McapWriter::write(uint16_t channel_id, uint64_t time, std::string_view message) {
  Channel& channel = channels_.at(channel_id - 1u);
  chunk_ += channel_records();
  announced_ = channels_.size();
  channel.index.emplace_back(time, chunk_.size());
  chunk_ += Content()
                .u16(channel_id)
                .u32(channel.sequence++)
                .u64(time)
                .u64(time)
                .raw(message)
                .record(kMessage);
  ++channel.messages;
  if (chunk_.size() >= kChunkBytes) flush();
}

void McapWriter::flush() {
  if (chunk_.empty() || !file_) return;
  ChunkIndex index{UINT64_MAX, 0, written_, 0, 0, chunk_.size(), {}};
  for (const Channel& channel : channels_) {
    for (const auto& [time, offset] : channel.index) {
      index.start = std::min(index.start, time);
      index.end = std::max(index.end, time);
    }
  }
  append(Content()
             .u64(index.start)
             .u64(index.end)
             .u64(chunk_.size())
             .u32(crc32(chunk_))
             .text("")
             .u64(chunk_.size())
             .raw(chunk_)
             .record(kChunk));
  index.length = written_ - index.offset;
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    if (channels_[i].index.empty()) continue;
    index.indices.emplace_back(static_cast<uint16_t>(i + 1), written_);
    Content records;
    for (const auto& [time, offset] : channels_[i].index) records.u64(time).u64(offset);
    append(Content().u16(i + 1).text(records.bytes()).record(kMessageIndex));
    channels_[i].index.clear();
  }
  index.index_length = written_ - index.offset - index.length;
  start_ = std::min(start_, index.start);
  end_ = std::max(end_, index.end);
  chunks_.push_back(std::move(index));
  chunk_.clear();
  if (std::fflush(file_) != 0) throw Error(FRT_ERR_IO, "cannot write " + path_);
}

void McapWriter::close() {
  if (!file_) return;
  flush();
  append(Content().u32(data_crc_).record(kDataEnd));
  const uint64_t summary_start = written_;
  announced_ = 0;
  std::string summary = channel_records();
  uint64_t messages = 0;
  Content counts;
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    messages += channels_[i].messages;
    counts.u16(i + 1).u64(channels_[i].messages);
  }
  summary += Content()
                 .u64(messages)
                 .u16(channels_.size())
                 .u32(channels_.size())
                 .u32(0)
                 .u32(0)
                 .u32(chunks_.size())
                 .u64(chunks_.empty() ? 0 : start_)
                 .u64(end_)
                 .text(counts.bytes())
                 .record(kStatistics);
  for (const ChunkIndex& chunk : chunks_) {
    Content offsets;
    for (const auto& [channel, offset] : chunk.indices) offsets.u16(channel).u64(offset);
    summary += Content()
                   .u64(chunk.start)
                   .u64(chunk.end)
                   .u64(chunk.offset)
                   .u64(chunk.length)
                   .text(offsets.bytes())
                   .u64(chunk.index_length)
                   .text("")
                   .u64(chunk.bytes)
                   .u64(chunk.bytes)
                   .record(kChunkIndex);
  }
  // The summary's CRC covers the footer up to itself.
  const std::string footer = Content().u64(summary_start).u64(0).u32(0).record(kFooter);
  summary += footer.substr(0, footer.size() - 4);
  const uint32_t crc = crc32(summary);
  append(summary);
  append(Content().u32(crc).bytes());
  append(kMagic);
  std::FILE* file = file_;
  file_ = nullptr;
  if (std::fclose(file) != 0) throw Error(FRT_ERR_IO, "cannot write " + path_);
}

}  // namespace frt::host
