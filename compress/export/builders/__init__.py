"""The builders of formats, one a file; `compress.formats` lists them. Files for browsers are built in `export/web`."""
