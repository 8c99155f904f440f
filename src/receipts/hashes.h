// SPDX-License-Identifier: Apache-2.0
// The hashes of receipts: SHA-256 (FIPS 180-4) as 64 hexadecimal digits.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "inflight/adapter.h"
#include "inflight/request.h"

namespace inflight::receipts {

std::string HashOfText(std::string_view text);
// Of the ids, each as four bytes, the lowest first.
std::string HashOfIds(std::span<const TokenId> ids);
// Of the numbers, each as the four bytes of a float32, the lowest first.
std::string HashOfNumbers(std::span<const float> numbers);
// Of all that the executor computes with: modules, layers, ranks, factors and biases.
std::string HashOfAdapter(const LoraTensors& adapter);

// Whether a file of a model's directory decides what the model computes: weights, and JSON other
// than that of tokenizers, templates and defaults of requests, whose effect stands in requests.
bool DecidesNumbers(const std::filesystem::path& file);

// Of every byte of the files of `model` that decide numbers, a directory or one file, and of shards
// that an index there names:
//
//   sha256(for each file in the order of names: name, a zero byte, size as eight bytes, and the
//          sha256 of each of its pieces of 16 MiB)
//
// Reads them on several threads. Errors name the file; kNotFound where there is none to hash.
Result<std::string> HashOfModel(const std::filesystem::path& model);

}  // namespace inflight::receipts
