package target

import "testing"

// A buffer that is not aligned would be written through the page cache, which nobody would see.
func TestBuffersAreAlignedAndApart(t *testing.T) {
	for _, size := range []int{Alignment, 1 << 20, hugePage} {
		buffers, free := Buffers(5, size)
		if len(buffers) != 5 || address(buffers[0])%hugePage != 0 {
			t.Errorf("%d buffers of %d bytes, the first at %x", len(buffers), size, address(buffers[0]))
		}
		for n, buffer := range buffers {
			if len(buffer) != size || cap(buffer) != size || !aligned(buffer) {
				t.Errorf("buffer %d has %d bytes, room for %d, want %d; aligned: %t", n, len(buffer), cap(buffer), size, aligned(buffer))
			}
			for i := range buffer {
				buffer[i] = byte(n + 1)
			}
		}
		for n, buffer := range buffers {
			if buffer[0] != byte(n+1) || buffer[size-1] != byte(n+1) {
				t.Errorf("buffer %d of %d bytes shares memory", n, size)
			}
		}
		free()
	}
	if p := pages(3 * Alignment); len(p) != 3*Alignment || !aligned(p) {
		t.Errorf("ordinary memory: %d bytes at %x", len(p), address(p))
	}
}
