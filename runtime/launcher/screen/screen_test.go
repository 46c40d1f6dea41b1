package screen

import (
	"bytes"
	"image/color"
	"image/png"
	"strings"
	"testing"
)

func TestAPixmapBecomesPNG(t *testing.T) {
	in := "P6\n2 1\n255\n" + "\x01\x02\x03" + "\n\xff " // a pixel may look like white space
	var out bytes.Buffer
	if err := WritePNG(&out, strings.NewReader(in), kindPPM); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X != 2 || size.Y != 1 {
		t.Fatalf("the size is %v", size)
	}
	for x, want := range []color.NRGBA{{1, 2, 3, 255}, {'\n', 255, ' ', 255}} {
		if got := color.NRGBAModel.Convert(picture.At(x, 0)); got != want {
			t.Errorf("pixel %d is %v, want %v", x, got, want)
		}
	}
}

func TestPNGStaysAsItIs(t *testing.T) {
	var out bytes.Buffer
	if err := WritePNG(&out, strings.NewReader("\x89PNG and so on"), kindPNG); err != nil || out.String() != "\x89PNG and so on" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestWhatIsNoPictureIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ in, kind, want string }{
		"another kind":        {"GIF89a", "image/gif", "image/gif"},
		"no head":             {"P5\n1 1\n255\n.", kindPPM, "head"},
		"an end too early":    {"P6\n2 2\n255\n...", kindPPM, "reading the picture"},
		"colours of 16 bits":  {"P6\n1 1\n65535\n......", kindPPM, "eight bits"},
		"no width":            {"P6\n0 1\n255\n", kindPPM, "no size"},
		"more than is usable": {"P6\n99999 99999\n255\n", kindPPM, "smaller resolution"},
	} {
		t.Run(name, func(t *testing.T) {
			err := WritePNG(&bytes.Buffer{}, strings.NewReader(c.in), c.kind)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
