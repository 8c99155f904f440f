// SPDX-License-Identifier: Apache-2.0
// Zip files of stored entries, written for tests and fuzzers the way torch.save lays them out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inflight::artifact {

struct TestZipEntry {
  std::string name;
  std::string data;
};

inline void AppendLittleEndian(std::string& bytes, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) bytes += i < 8 ? static_cast<char>(value >> (8 * i)) : '\0';
}

// Without zip64 records, flags, times and checksums.
inline std::string MakeTestZip(const std::vector<TestZipEntry>& entries) {
  std::string file;
  std::string directory;
  const auto common = [](std::string& to, const TestZipEntry& entry) {
    AppendLittleEndian(to, 0, 2 + 2 + 4 + 4);  // flags, method 0, time, checksum
    AppendLittleEndian(to, entry.data.size(), 4);
    AppendLittleEndian(to, entry.data.size(), 4);
    AppendLittleEndian(to, entry.name.size(), 2);
    AppendLittleEndian(to, 0, 2);  // extra
  };
  for (const TestZipEntry& entry : entries) {
    AppendLittleEndian(directory, 0x02014b50, 4);
    AppendLittleEndian(directory, 0, 2 + 2);  // versions
    common(directory, entry);
    AppendLittleEndian(directory, 0, 2 + 2 + 2 + 4);  // comment, disk, attributes
    AppendLittleEndian(directory, file.size(), 4);
    directory += entry.name;
    AppendLittleEndian(file, 0x04034b50, 4);
    AppendLittleEndian(file, 0, 2);  // version
    common(file, entry);
    file += entry.name + entry.data;
  }
  const size_t offset = file.size();
  file += directory;
  AppendLittleEndian(file, 0x06054b50, 4);
  AppendLittleEndian(file, 0, 4);  // disks
  AppendLittleEndian(file, entries.size(), 2);
  AppendLittleEndian(file, entries.size(), 2);
  AppendLittleEndian(file, directory.size(), 4);
  AppendLittleEndian(file, offset, 4);
  AppendLittleEndian(file, 0, 2);  // comment
  return file;
}

}  // namespace inflight::artifact
