/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package qmp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// qemu answers as QEMU does. A command "fail" fails, and "power" has an event before its answer.
func qemu(connection net.Conn) {
	_, _ = fmt.Fprintln(connection, `{"QMP": {"version": {}, "capabilities": []}}`)
	decoder := json.NewDecoder(connection)
	for {
		var command struct {
			Execute   string
			Arguments json.RawMessage
		}
		if decoder.Decode(&command) != nil {
			return
		}
		switch command.Execute {
		case "fail":
			_, _ = fmt.Fprintln(connection, `{"error": {"class": "GenericError", "desc": "no such disk"}}`)
		case "power":
			_, _ = fmt.Fprintln(connection, `{"event": "STOP", "data": {"why": "power"}}`, "\n", `{"return": {}}`)
		case "end":
			_ = connection.Close()
		case "nothing":
		default:
			_, _ = fmt.Fprintf(connection, `{"return": {"command": %q, "arguments": %s}}`+"\n", command.Execute,
				cmp.Or(string(command.Arguments), "null"))
		}
	}
}

func newClient(t *testing.T) *Client {
	t.Helper()
	here, there := net.Pipe()
	go qemu(there)
	c, err := New(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestACommandReturnsItsAnswer(t *testing.T) {
	var got struct {
		Command   string
		Arguments map[string]int
	}
	err := newClient(t).Execute(t.Context(), "block_resize", map[string]int{"size": 5}, &got)
	if err != nil || got.Command != "block_resize" || got.Arguments["size"] != 5 {
		t.Errorf("answer %+v, error %v, want the command and its arguments", got, err)
	}
}

func TestACommandThatFailsIsAnErrorWithQEMUsReason(t *testing.T) {
	c := newClient(t)
	if err := c.Execute(t.Context(), "fail", nil, nil); err == nil || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("error %v, want the reason", err)
	}
	if err := c.Execute(t.Context(), "end", nil, nil); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("error %v, want that QEMU has ended", err)
	}
}

func TestAnEventIsSeenAlsoByOneWhoWaitsForItLate(t *testing.T) {
	c := newClient(t)
	mark := c.Mark()
	if err := c.Execute(t.Context(), "power", nil, nil); err != nil {
		t.Fatal(err)
	}
	accept := func(e Event) bool { return e.Name == "STOP" && strings.Contains(string(e.Data), "power") }
	if err := c.Await(t.Context(), mark, accept); err != nil {
		t.Errorf("error %v, want the event of before", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Await(ctx, c.Mark(), accept); err == nil {
		t.Error("an event of before the mark was seen, want none")
	}
}

func TestACommandWithoutAnAnswerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := newClient(t).Execute(ctx, "nothing", nil, nil); err == nil {
		t.Error("a command without an answer succeeded, want an error")
	}
}
