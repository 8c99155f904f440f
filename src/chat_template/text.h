// SPDX-License-Identifier: Apache-2.0
// Text as Python's str sees it: code points, not bytes. Input is UTF-8; bytes that form no
// character count as one each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inflight::chat_template {

// Byte offset of each code point, and the size at the end.
std::vector<size_t> CharacterOffsets(std::string_view text);
size_t NumCharacters(std::string_view text);

// Without white space (str.isspace) at the ends.
std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
std::string_view Strip(std::string_view text);

// Without characters of the set `chars` at the ends.
std::string_view StripLeft(std::string_view text, std::string_view chars);
std::string_view StripRight(std::string_view text, std::string_view chars);

// Between runs of white space, or at each `separator`; at most `max_splits` cuts where >= 0.
std::vector<std::string> Split(std::string_view text, int64_t max_splits);
std::vector<std::string> Split(std::string_view text, std::string_view separator,
                               int64_t max_splits);

// The same from the end, where the last cuts are made; `separator` null: runs of white space.
std::vector<std::string> SplitFromEnd(std::string_view text, const std::string* separator,
                                      int64_t max_splits);

// At each line break that str.splitlines knows.
std::vector<std::string> SplitLines(std::string_view text, bool keep_ends);

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t max_count);

// Character by character; those that change their length (as the German sharp s) stay.
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string Title(std::string_view text);         // each word, where words are runs of letters
std::string TitleOfWords(std::string_view text);  // words end at white space, - ( { [ and <

std::string EscapedForHtml(std::string_view text);  // & < > ' "

std::string QuotedText(std::string_view text);  // Python's repr
void AppendJsonText(std::string_view text, bool ensure_ascii, std::string& out);
void AppendUtf8(uint32_t code_point, std::string& out);

}  // namespace inflight::chat_template
