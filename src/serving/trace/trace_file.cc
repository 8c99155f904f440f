// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace inflight::serving {

TraceFile::TraceFile(std::string path)
    : path_(std::move(path)), writer_(std::make_unique<WorkerPool>(1, "trace")) {}

TraceFile::~TraceFile() {
  writer_.reset();  // writes what was posted
  if (file_.is_open()) file_ << "]";
}

void TraceFile::Append(std::string elements) {
  writer_->Post([this, elements = std::move(elements)] {
    if (file_.is_open()) {
      file_ << ",";
    } else {
      file_.open(path_, std::ios::trunc);
      file_ << "[";
    }
    file_ << elements << std::flush;
    Check(file_, path_);
  });
}

void TraceFile::WriteNumbered(std::string elements) {
  writer_->Post([this, elements = std::move(elements)] {
    const std::string path = path_ + "." + std::to_string(num_files_++);
    std::ofstream file(path, std::ios::trunc);
    file << "[" << elements << "]" << std::flush;
    Check(file, path);
  });
}

void TraceFile::Check(const std::ofstream& file, const std::string& path) const {
  if (file.good()) return;
  logging::Error("trace file cannot be written",
                 {{"path", path}, {"reason", std::strerror(errno)}});
}

}  // namespace inflight::serving
