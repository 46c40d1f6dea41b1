// Package screen turns the pictures that libvirt takes of a guest's screen into PNG.
package screen

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
)

// Kinds of pictures, in libvirt's words.
const (
	kindPNG = "image/png"
	kindPPM = "image/x-portable-pixmap"
)

// maxSize bounds a picture in bytes: the guest chooses how large its screen is, and the
// launcher's memory is small.
const maxSize = 48 << 20

// WritePNG reads a picture of the kind that libvirt names, to its end, and writes it to
// out as PNG.
func WritePNG(out io.Writer, in io.Reader, kind string) error {
	switch kind {
	case kindPNG:
		return copyWhole(out, in)
	case kindPPM:
		reader := bufio.NewReader(in)
		picture, err := readPixmap(reader)
		if err != nil {
			return err
		}
		encoder := png.Encoder{CompressionLevel: png.BestSpeed}
		if err := encoder.Encode(out, picture); err != nil {
			return fmt.Errorf("writing the picture: %w", err)
		}
		return copyWhole(io.Discard, reader) // a stream is finished only at its end
	}
	return fmt.Errorf("libvirt took a picture of the kind %s, which cannot be turned into PNG", kind)
}

func copyWhole(out io.Writer, in io.Reader) error {
	n, err := io.Copy(out, io.LimitReader(in, maxSize+1))
	if err != nil {
		return fmt.Errorf("copying the picture: %w", err)
	}
	if n > maxSize {
		return errTooLarge
	}
	return nil
}

var errTooLarge = fmt.Errorf("the picture is larger than %d MiB; choose a smaller resolution in the guest", maxSize>>20)

// pixmap is a picture of three bytes a pixel, kept as it came, for a copy in the form of
// package image would take a third more.
type pixmap struct {
	width, height int
	pixels        []byte
}

func (p pixmap) ColorModel() color.Model { return color.NRGBAModel }

func (p pixmap) Bounds() image.Rectangle { return image.Rect(0, 0, p.width, p.height) }

func (p pixmap) At(x, y int) color.Color {
	i := 3 * (y*p.width + x)
	return color.NRGBA{R: p.pixels[i], G: p.pixels[i+1], B: p.pixels[i+2], A: 0xff}
}

// Opaque spares the encoder from looking at each pixel for that.
func (p pixmap) Opaque() bool { return true }

// readPixmap reads the binary form of a portable pixmap (P6) with one byte a colour.
func readPixmap(in *bufio.Reader) (pixmap, error) {
	var width, height, depth int
	if _, err := fmt.Fscanf(in, "P6\n%d %d\n%d", &width, &height, &depth); err != nil {
		return pixmap{}, fmt.Errorf("reading the picture's head: %w", err)
	}
	var newline [1]byte
	if _, err := io.ReadFull(in, newline[:]); err != nil {
		return pixmap{}, fmt.Errorf("reading the picture's head: %w", err)
	}
	if width <= 0 || height <= 0 || depth != 255 {
		return pixmap{}, errors.New("the picture's head says no size, or colours of another depth than eight bits")
	}
	if width > maxSize/3/height {
		return pixmap{}, errTooLarge
	}
	picture := pixmap{width: width, height: height, pixels: make([]byte, 3*width*height)}
	if _, err := io.ReadFull(in, picture.pixels); err != nil {
		return pixmap{}, fmt.Errorf("reading the picture: %w", err)
	}
	return picture, nil
}
