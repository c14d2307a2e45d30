// Reading and writing of one binary layout from one description of the fields.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace steppe::archive {

class Writer {
 public:
  static constexpr bool kReads = false;

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  void number(std::uint64_t value, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  template <class T>
    requires std::integral<T> || std::is_enum_v<T>
  void put(const T& value) {
    number(static_cast<std::uint64_t>(value), sizeof(T));
  }
  void put(const double& value) { number(std::bit_cast<std::uint64_t>(value), 8); }
  void put(const std::string& text) {
    number(text.size(), 4);
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  template <class T>
  void put(const std::vector<T>& values) {
    number(values.size(), 4);
    for (const T& value : values) put(value);
  }
  template <class T>
    requires std::is_class_v<T>
  void put(const T& value) {
    fields(*this, const_cast<T&>(value));  // a description names the fields, a writer leaves them alone
  }

  std::vector<std::uint8_t> bytes_;
};

class Reader {
 public:
  static constexpr bool kReads = true;

  explicit Reader(std::span<const std::uint8_t> bytes) : left_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool done() const { return left_.empty(); }

 private:
  std::uint64_t number(std::size_t width) {
    if (left_.size() < width) throw std::invalid_argument("the bytes end too early");
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) value |= std::uint64_t{left_[i]} << (8 * i);
    left_ = left_.subspan(width);
    return value;
  }
  // A list is at least a byte an entry: a count beyond what is left is a lie, refused before anything is
  // allocated.
  std::size_t length() {
    const std::uint64_t count = number(4);
    if (count > left_.size()) throw std::invalid_argument("a list is longer than the bytes that follow");
    return static_cast<std::size_t>(count);
  }
  template <class T>
    requires std::integral<T>
  void get(T& value) {
    const std::uint64_t raw = number(sizeof(T));
    if constexpr (std::same_as<T, bool>) {
      if (raw > 1) throw std::invalid_argument("a flag is neither 0 nor 1");
    }
    value = static_cast<T>(raw);
  }
  template <class T>
    requires std::is_enum_v<T>
  void get(T& value) {
    const std::uint64_t raw = number(sizeof(T));
    if (raw >= enumerators(T{})) throw std::invalid_argument("a choice is out of range");
    value = static_cast<T>(raw);
  }
  void get(double& value) { value = std::bit_cast<double>(number(8)); }
  void get(std::string& text) {
    const std::size_t size = length();
    text.assign(reinterpret_cast<const char*>(left_.data()), size);
    left_ = left_.subspan(size);
  }
  template <class T>
  void get(std::vector<T>& values) {
    const std::size_t size = length();
    values.clear();
    for (std::size_t i = 0; i < size; ++i) get(values.emplace_back());
  }
  template <class T>
    requires std::is_class_v<T>
  void get(T& value) {
    fields(*this, value);
  }

  std::span<const std::uint8_t> left_;
};

}  // namespace steppe::archive
