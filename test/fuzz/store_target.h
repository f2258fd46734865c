#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Gives a store's server these bytes, as what ranks and strangers send: a byte that says who, one that says how many
/// bytes, and those, again and again. Throws std::logic_error if the server then answers its other rank wrongly.
/// Whether the job has survived.
bool feed_store(std::span<const uint8_t> bytes);

/// Messages of all kinds, in that form.
std::vector<std::string> store_seeds();
