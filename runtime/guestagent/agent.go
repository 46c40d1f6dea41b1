// Package guestagent speaks to the QEMU guest agent in a guest: what runs there, its
// addresses, and commands. It knows the agent's messages, not how they travel.
package guestagent

import (
	"context"
	"encoding/json"
	"fmt"
)

// Channel carries one command to the agent and its answer back, both JSON. It gives
// up when ctx is done.
type Channel interface {
	AgentCommand(ctx context.Context, command string) (string, error)
}

// command is the form of every request.
type command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// call sends a command and decodes its result into out.
func call(ctx context.Context, channel Channel, name string, arguments, out any) error {
	request, err := json.Marshal(command{Execute: name, Arguments: arguments})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	answer, err := channel.AgentCommand(ctx, string(request))
	if err != nil {
		return fmt.Errorf("asking the guest agent for %s: %w", name, err)
	}
	var reply struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Description string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(answer), &reply); err != nil {
		return fmt.Errorf("decoding the guest agent's answer to %s: %w", name, err)
	}
	if reply.Error != nil {
		return fmt.Errorf("the guest agent refused %s: %s", name, reply.Error.Description)
	}
	if err := json.Unmarshal(reply.Return, out); err != nil {
		return fmt.Errorf("decoding the guest agent's answer to %s: %w", name, err)
	}
	return nil
}
