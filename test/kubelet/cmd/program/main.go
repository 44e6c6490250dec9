/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command program runs in the containers of the end-to-end tests. It is the only program on their disk.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `program pause               wait until it is ended
program write  PATH TEXT    write the text to the beginning of a file or device, synchronously
program append PATH TEXT    append the text to a file, synchronously
program insist PATH TEXT    write again and again until it is ended, whatever the result
program refused PATH        fail unless the file cannot be written because its filesystem is read-only
program hold   PATH         keep a file open until SIGUSR1, then wait until it is ended
program count  PATH         write the next number and read it back, again and again until it is ended; fail at an error
program read   PATH TEXT    fail unless a file contains only that text, or a device begins with it`

// pause between two attempts of insist, and between two numbers of count.
const pause = 20 * time.Millisecond

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "pause":
		<-ended()
		return nil
	case len(args) == 3 && args[0] == "write":
		return write(args[1], args[2], 0)
	case len(args) == 3 && args[0] == "append":
		return write(args[1], args[2], os.O_APPEND)
	case len(args) == 3 && args[0] == "insist":
		insist(args[1], args[2])
		return nil
	case len(args) == 2 && args[0] == "refused":
		return refused(args[1])
	case len(args) == 2 && args[0] == "hold":
		return hold(args[1])
	case len(args) == 2 && args[0] == "count":
		return count(args[1])
	case len(args) == 3 && args[0] == "read":
		return read(args[1], args[2])
	}
	return errors.New("usage:\n" + usage)
}

// ended receives a signal when the container is ended.
func ended() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	return signals
}

func insist(path, text string) {
	signals, again := ended(), time.NewTicker(pause)
	defer again.Stop()
	last := ""
	for {
		now := "written"
		if err := write(path, text, 0); err != nil {
			now = err.Error()
		}
		if now != last {
			fmt.Println(now)
		}
		last = now
		select {
		case <-signals:
			return
		case <-again.C:
		}
	}
}

func hold(path string) error {
	ends, release := ended(), make(chan os.Signal, 1)
	signal.Notify(release, syscall.SIGUSR1)
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	select {
	case <-release:
		err = file.Close()
		<-ends
	case <-ends:
		err = file.Close()
	}
	return err
}

func refused(path string) error {
	if err := write(path, "", os.O_APPEND); !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("writing to %s: error %w, not that the filesystem is read-only", path, err)
	}
	return nil
}

// count writes numbers of equal length, so that each replaces the one before.
func count(path string) error {
	signals, again := ended(), time.NewTicker(pause)
	defer again.Stop()
	for i := 1; ; i++ {
		number := fmt.Sprintf("%012d", i)
		if err := write(path, number, 0); err != nil {
			return err
		}
		if err := read(path, number); err != nil {
			return err
		}
		select {
		case <-signals:
			return nil
		case <-again.C:
		}
	}
}

func write(path, text string, flag int) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_SYNC|flag, 0o644)
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func read(path, text string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("looking: %w", err)
	}
	var content io.Reader = file
	if info.Mode()&os.ModeDevice != 0 {
		content = io.LimitReader(file, int64(len(text)))
	}
	got, err := io.ReadAll(content)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if !bytes.Equal(got, []byte(text)) {
		return fmt.Errorf("%s contains %q, not %q", path, got, text)
	}
	return nil
}
