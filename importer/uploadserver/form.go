package uploadserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// fileInForm is the field of a form with the image. It ends when the form has come to its end.
type fileInForm struct {
	file io.Reader
	form io.Reader // what comes behind the file is read and dropped
}

func (f *fileInForm) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if err != io.EOF { //nolint:errorlint // only io.EOF itself is the file's end
		return n, err //nolint:wrapcheck // io.Reader's contract
	}
	if _, err := io.Copy(io.Discard, f.form); err != nil {
		return n, fmt.Errorf("reading the form to its end: %w", err)
	}
	return n, io.EOF
}

// fileOf returns the field of r's form that has the image. What comes before it is read and dropped.
func fileOf(r *http.Request) (io.Reader, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, transfer.Errorf(transfer.WrongFormat, "reading the form: %w; send it as multipart/form-data", err)
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, transfer.Errorf(transfer.WrongFormat, "the form has no field %q; put the disk image there", upload.FormField)
		}
		if err != nil {
			return nil, transfer.Errorf(transfer.ConnectionLost, "reading the form: %w; send it again", err)
		}
		if part.FormName() == upload.FormField {
			return part, nil
		}
	}
}
