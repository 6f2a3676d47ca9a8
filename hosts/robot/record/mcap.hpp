// SPDX-License-Identifier: Apache-2.0
// mcap.hpp - an append-only writer of MCAP files (mcap.dev), which Foxglove and Rerun open.
//
// Messages are collected into chunks with a CRC; a chunk is written and flushed as a whole, so a
// file that was never closed is readable up to its last chunk. close() adds the summary. Not
// compressed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

class McapWriter {
 public:
  // Throws FRT_ERR_IO.
  explicit McapWriter(const std::filesystem::path& path);
  ~McapWriter();  // closes without throwing
  McapWriter(const McapWriter&) = delete;
  McapWriter& operator=(const McapWriter&) = delete;

  // A topic of JSON messages of one JSON schema; its id.
  uint16_t add_channel(const std::string& topic, const std::string& schema_name,
                       const std::string& schema);
  // `time`: nanoseconds.
  void write(uint16_t channel, uint64_t time, std::string_view message);
  // Writes what is collected and flushes it.
  void flush();
  void close();

 private:
  struct Channel {
    std::string topic, schema_name, schema;
    uint32_t sequence = 0;
    uint64_t messages = 0;
    std::vector<std::pair<uint64_t, uint64_t>> index;  // of the open chunk: time, offset
  };
  struct ChunkIndex {
    uint64_t start, end, offset, length, index_length, bytes;
    std::vector<std::pair<uint16_t, uint64_t>> indices;  // channel, offset of its message index
  };

  void append(std::string_view bytes);
  std::string channel_records() const;

  std::string path_;
  std::FILE* file_ = nullptr;
  uint64_t written_ = 0;
  uint32_t data_crc_ = 0;
  std::vector<Channel> channels_;
  std::vector<ChunkIndex> chunks_;
  std::string chunk_;
  std::size_t announced_ = 0;  // channels that a chunk has introduced
  uint64_t start_ = UINT64_MAX, end_ = 0;
};

}  // namespace frt::host
