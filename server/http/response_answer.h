// server/http/response_answer.h: owns the answers of /v1/responses (OpenAI's Responses API): the response object and
// the events of its stream.
//
//   P1  every event has the next sequence_number, from 0
//   P2  the last event is response.completed, response.incomplete or response.failed, and has the whole response
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/item_answer.h"
#include "server/http/response_request.h"

namespace verbatim::server {

class ResponseAnswer final : public ItemAnswer {
public:
    ResponseAnswer(const ResponseRequest& request, AnswerFrame frame, bool is_stream);
    [[nodiscard]] Json whole() const override;

private:
    void show_begin() override;
    void show_item() override;
    void show_delta(std::string_view delta) override;
    void show_item_end() override;
    void complete_items() override;
    void show_end() override;
    void show_error(const ApiError& error) override;

    [[nodiscard]] const char* status() const;
    [[nodiscard]] Json response_json(const char* status) const;
    [[nodiscard]] Json item_json(size_t index, const char* status) const;
    [[nodiscard]] std::string item_id(size_t index) const;
    void show(const char* event, Json json);
    void show_of_last(const char* event, Json json);  // with the item's id and its index

    Json repeated_;  // members of the request
    AnswerFrame frame_;
    std::string number_;  // of the response: its id without the prefix
    int64_t next_event_ = 0;
};

}  // namespace verbatim::server
