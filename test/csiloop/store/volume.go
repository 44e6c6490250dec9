/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	defaultSize = 1 << 30
	minimumSize = 1 << 20
	alignment   = 4096
)

// chooseSize selects a size for a capacity range. required or limit 0 is not set.
func chooseSize(required, limit int64) (int64, error) {
	if required < 0 || limit < 0 || (limit > 0 && required > limit) {
		return 0, status.Errorf(codes.InvalidArgument, "capacity range %d to %d is invalid", required, limit)
	}
	size := required
	if size == 0 {
		size = defaultSize
		if limit > 0 {
			size = min(size, limit/alignment*alignment)
		}
	}
	size = (max(size, minimumSize) + alignment - 1) / alignment * alignment
	if limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "the smallest possible size %d is above the limit %d", size, limit)
	}
	return size, nil
}

// volumeID is the name itself if it is valid as a file name.
func volumeID(name string) string {
	if validID.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "vol-" + hex.EncodeToString(sum[:16])
}

// Create creates a volume, or returns the volume of that name if it fits the capacity range.
func (s *Store) Create(name string, required, limit int64) (volume Volume, err error) {
	size, err := chooseSize(required, limit)
	if err != nil {
		return Volume{}, err
	}
	id := volumeID(name)
	err = s.locked(func() error {
		volume, err = s.Get(id)
		if err == nil {
			return fits(volume, required, limit)
		}
		if status.Code(err) != codes.NotFound {
			return err
		}
		if err := s.checkCapacity(size); err != nil {
			return err
		}
		volume = Volume{ID: id, Name: name, Created: time.Now().UnixNano(), Size: size}
		if err := createImage(s.image(id), size); err != nil {
			return err
		}
		return s.put(volume)
	})
	return volume, err
}

func fits(volume Volume, required, limit int64) error {
	if volume.Size < required || (limit > 0 && volume.Size > limit) {
		return status.Errorf(codes.AlreadyExists, "volume %q exists with %d bytes, %d to %d were requested",
			volume.Name, volume.Size, required, limit)
	}
	return nil
}

func createImage(path string, size int64) error {
	// A file without a record is from a killed Create or Delete.
	if err := remove(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("creating data file: %w", err)
	}
	return errors.Join(file.Truncate(size), file.Close())
}

func (s *Store) checkCapacity(more int64) error {
	available, err := s.Available()
	if err != nil {
		return err
	}
	if s.capacity > 0 && more > available {
		return status.Errorf(codes.ResourceExhausted, "%d bytes are available, %d are required", available, more)
	}
	return nil
}

// Available is how many bytes new volumes may have. Without a set capacity it is the disk's free space. Files are
// sparse, so volumes may have more bytes in total than the disk.
func (s *Store) Available() (int64, error) {
	if s.capacity == 0 {
		var disk unix.Statfs_t
		if err := unix.Statfs(s.dir, &disk); err != nil {
			return 0, fmt.Errorf("reading free space: %w", err)
		}
		return int64(disk.Bavail) * disk.Bsize, nil
	}
	volumes, err := s.List()
	if err != nil {
		return 0, err
	}
	left := s.capacity
	for _, volume := range volumes {
		left -= volume.Size
	}
	return max(left, 0), nil
}

// Delete removes a volume that is not published. It succeeds if the volume does not exist.
func (s *Store) Delete(id string) error {
	return s.locked(func() error {
		volume, err := s.Get(id)
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
		if len(volume.Publications) > 0 {
			return status.Errorf(codes.FailedPrecondition, "volume %q is published to %v", id, nodesOf(volume))
		}
		if !validID.MatchString(id) {
			return nil
		}
		for _, path := range []string{s.record(id), s.formatMark(id), s.image(id)} {
			if err := remove(path); err != nil {
				return err
			}
		}
		return nil
	})
}

// Expand grows the volume's data file; it never shrinks.
func (s *Store) Expand(id string, required, limit int64) (size int64, err error) {
	size, err = chooseSize(required, limit)
	if err != nil {
		return 0, err
	}
	err = s.locked(func() error {
		volume, err := s.Get(id)
		if err != nil {
			return err
		}
		if size <= volume.Size {
			size = volume.Size
			if limit > 0 && size > limit {
				return status.Errorf(codes.OutOfRange, "volume %q has %d bytes, more than the limit %d", id, size, limit)
			}
			return nil
		}
		if err := s.checkCapacity(size - volume.Size); err != nil {
			return err
		}
		return os.Truncate(s.image(id), size)
	})
	return size, err
}

// remove removes a file that may not exist.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing: %w", err)
	}
	return nil
}
