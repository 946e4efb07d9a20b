#include "server/text/sentence_pieces.h"

#include <algorithm>
#include <queue>

#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

std::string with_space_marks(std::string_view text, bool prefix) {
    std::string marked(prefix ? kSpaceMark : "");
    for (const char c : text) {
        if (c == ' ')
            marked += kSpaceMark;
        else
            marked += c;
    }
    return marked;
}

}  // namespace

SentencePieces::SentencePieces(Tables tables) : bytes_(tables.bytes), add_space_prefix_(tables.add_space_prefix) {
    for (SentencePiece& piece : tables.pieces) {
        max_bytes_ = std::max(max_bytes_, piece.text.size());
        pieces_.emplace(std::move(piece.text), Piece{piece.id, piece.score});
    }
}

// The text as a list of symbols, first its characters, and the pairs of neighbours that are pieces.
struct SentencePieces::Merging {
    static constexpr int64_t kNone = -1;
    struct Symbol {
        int64_t previous = kNone;
        int64_t next = kNone;
        size_t begin = 0;
        size_t size = 0;  // 0: merged into the one before it
    };
    struct Pair {
        float score = 0;
        int64_t left = 0;
        int64_t right = 0;
        size_t size = 0;  // of both, when the pair was seen
        friend bool operator<(const Pair& a, const Pair& b) {
            return a.score != b.score ? a.score < b.score : a.left > b.left;
        }
    };

    Merging(const SentencePieces& of, std::string_view text) : of(of), text(text) {
        for (size_t at = 0; at < text.size();) {
            const auto size = static_cast<size_t>(read_utf8(text.substr(at, 4)).num_bytes);
            const auto index = std::ssize(symbols);
            symbols.push_back({index - 1, index + 1, at, size});
            at += size;
        }
        if (!symbols.empty()) symbols.back().next = kNone;
        for (int64_t i = 0; i + 1 < std::ssize(symbols); ++i) see(i, i + 1);
    }

    [[nodiscard]] const Piece* find(size_t begin, size_t size) const {
        if (size > of.max_bytes_) return nullptr;
        const auto found = of.pieces_.find(std::string(text.substr(begin, size)));
        return found == of.pieces_.end() ? nullptr : &found->second;
    }
    Symbol& at(int64_t index) { return symbols[static_cast<size_t>(index)]; }

    void see(int64_t left, int64_t right) {
        if (left == kNone || right == kNone) return;
        const size_t size = at(left).size + at(right).size;
        if (const Piece* piece = find(at(left).begin, size)) pairs.push({piece->score, left, right, size});
    }

    void merge_all() {
        while (!pairs.empty()) {
            const Pair pair = pairs.top();
            pairs.pop();
            Symbol& left = at(pair.left);
            Symbol& right = at(pair.right);
            if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) continue;
            left.size = pair.size;
            right.size = 0;
            left.next = right.next;
            if (right.next != kNone) at(right.next).previous = pair.left;
            see(left.previous, pair.left);
            see(pair.left, left.next);
        }
    }

    const SentencePieces& of;
    std::string_view text;
    std::vector<Symbol> symbols;
    std::priority_queue<Pair> pairs;
};

void SentencePieces::encode(std::string_view text, bool at_start, std::vector<TokenId>& ids) const {
    if (text.empty()) return;
    const std::string marked = with_space_marks(text, at_start && add_space_prefix_);
    Merging merging(*this, marked);
    merging.merge_all();
    for (int64_t i = 0; i != Merging::kNone; i = merging.at(i).next) {
        const auto& symbol = merging.at(i);
        if (const Piece* piece = merging.find(symbol.begin, symbol.size)) {
            ids.push_back(piece->id);
            continue;
        }
        for (const char c : std::string_view(marked).substr(symbol.begin, symbol.size))
            ids.push_back(bytes_[static_cast<unsigned char>(c)]);
    }
}

}  // namespace verbatim::text
