// engine/base/short_list.h: owns a list of values that mostly has one: that one lies in the list itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace verbatim {

// `kNone` is no value of a list.
template <typename T, T kNone>
class ShortList {
public:
    ShortList() = default;
    ShortList(const ShortList& other)
        : lone_(other.lone_), several_(other.several_ ? std::make_unique<std::vector<T>>(*other.several_) : nullptr) {}
    ShortList(ShortList&& other) noexcept
        : lone_(std::exchange(other.lone_, kNone)), several_(std::move(other.several_)) {}
    ShortList& operator=(ShortList other) noexcept {
        std::swap(lone_, other.lone_);
        std::swap(several_, other.several_);
        return *this;
    }

    [[nodiscard]] std::span<const T> all() const {
        if (several_) return *several_;
        return {&lone_, lone_ == kNone ? size_t{0} : size_t{1}};
    }
    [[nodiscard]] auto begin() const { return all().begin(); }
    [[nodiscard]] auto end() const { return all().end(); }
    [[nodiscard]] size_t size() const { return several_ ? several_->size() : all().size(); }
    [[nodiscard]] bool empty() const { return size() == 0; }
    void push_back(T value) {
        if (empty()) {
            lone_ = value;
            return;
        }
        if (!several_) several_ = std::make_unique<std::vector<T>>(1, std::exchange(lone_, kNone));
        several_->push_back(value);
    }
    // Every value that is equal; returns how many there were.
    size_t erase(const T& value) {
        if (!several_) return empty() || lone_ != value ? 0 : (lone_ = kNone, 1);
        const size_t erased = std::erase(*several_, value);
        if (several_->size() > 1) return erased;
        const std::unique_ptr<std::vector<T>> left = std::move(several_);
        if (!left->empty()) lone_ = left->front();
        return erased;
    }
    friend bool operator==(const ShortList& a, const ShortList& b) { return std::ranges::equal(a.all(), b.all()); }

private:
    T lone_ = kNone;                           // kNone: there are none, or several
    std::unique_ptr<std::vector<T>> several_;  // two or more; null otherwise
};

}  // namespace verbatim
