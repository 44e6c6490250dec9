/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"strings"
	"testing"

	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// counted is a value that counts how often it is encoded.
type counted struct{ times int }

func (c *counted) MarshalLogObject(e zapcore.ObjectEncoder) error {
	c.times++
	e.AddString("name", "data")
	return nil
}

func TestALoggerEncodesItsFieldsWhenItWritesALine(t *testing.T) {
	var out bytes.Buffer
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), zapcore.AddSync(&out),
		zapcore.InfoLevel)
	volume := &counted{}
	log := uberzap.New(core, uberzap.WrapCore(lazily)).With(uberzap.Object("volume", volume)).With(
		uberzap.String("node", "a"))
	if log.Debug("not said"); volume.times != 0 {
		t.Errorf("volume encoded %d times without a line, want 0", volume.times)
	}
	log.Info("said")
	log.Info("said")
	line := `{"msg":"said","volume":{"name":"data"},"node":"a"}`
	if got := strings.Fields(out.String()); len(got) != 2 || got[0] != line || got[1] != line || volume.times != 1 {
		t.Errorf("volume encoded %d times, lines %q; want once and twice %q", volume.times, got, line)
	}
}
