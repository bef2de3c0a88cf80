"""Roles of columns in tables and of fields in samples, by the names that people give them."""

import re
import unicodedata
from typing import Final, Literal

Role = Literal["image", "text", "report", "findings", "impression", "labels", "id", "split", "group", "order"]

_SPELLED: Final[dict[Role, str]] = {
    "image": (
        "image image_path image_file image_name image_filename image_file_name image_index file_path "
        "filepath path file_name filename file img img_path img_file img_name picture photo image_url bild "
        "bilddatei bildname bildpfad dateiname datei dateipfad pfad foto fotodatei fotoname nom_de_fichier "
        "nom_du_fichier nom_fichier nom_image fichier chemin nombre_de_archivo nombre_archivo nombre_imagen "
        "archivo imagen ruta fichero nome_file nome_del_file nome_immagine immagine percorso bestandsnaam "
        "bestand afbeelding naam_afbeelding ファイル名 ファイル ファイルパス 画像 画像名 画像ファイル "
        "画像ファイル名 画像パス 文件名 文件 文件路径 图像 图像名 图像路径 图像文件 图片 图片名 图片路径 "
        "影像 檔名 檔案 檔案名稱 檔案路徑 圖像 圖片 파일명 파일_이름 파일이름 파일 파일_경로 이미지 "
        "이미지_파일 이미지명 영상 plik nazwa_pliku ścieżka obraz obrazek zdjęcie файл имя_файла "
        "название_файла путь путь_к_файлу изображение снимок картинка arquivo nome_do_arquivo nome_arquivo "
        "nome_do_ficheiro ficheiro imagem caminho"
    ),
    "text": (
        "text texts caption captions comment comments sentence sentences description descriptions "
        "image_caption caption_text raw_caption prompt alt_text imagedescription image_description "
        "caption_abstract headline xpcomment bildbeschreibung bildunterschrift beschreibung bildtext "
        "beschriftung kommentar description_de_l_image legende texte commentaire descripcion leyenda "
        "pie_de_foto texto comentario descrizione didascalia testo commento beschrijving bijschrift "
        "onderschrift tekst omschrijving 説明 説明文 キャプション テキスト 文章 コメント 描述 图像描述 "
        "图片描述 说明 文本 标题文本 描述文本 圖像描述 說明 文字 설명 캡션 텍스트 문장 코멘트 opis podpis "
        "opis_obrazu opis_zdjęcia komentarz описание подпись текст комментарий описание_изображения "
        "descrição legenda comentário"
    ),
    "report": (
        "report reports report_text full_report radiology_report befundtext befundbericht bericht "
        "compte_rendu rapport informe informe_radiologico referto verslag radiologieverslag レポート "
        "読影レポート 読影所見 報告書 報告 报告 检查报告 影像报告 诊断报告 报告内容 放射报告 報告內容 판독문 "
        "판독_소견 판독소견 보고서 리포트 opis_badania raport wynik_badania заключение_рентгенолога протокол "
        "отчет отчёт протокол_исследования laudo relatório"
    ),
    "findings": (
        "findings finding findings_text befund befunde constatations description_des_images hallazgos "
        "reperti bevindingen 所見 画像所見 影像所見 所见 影像所见 检查所见 影像表现 影像学表现 소견 "
        "영상_소견 wyniki stwierdzono находки описание_снимка achados"
    ),
    "impression": (
        "impression impressions impression_text conclusion conclusions beurteilung zusammenfassung diagnose "
        "diagnosis diagnostic impresion conclusiones diagnostico conclusione conclusioni diagnosi conclusie "
        "診断 印象 結論 インプレッション 诊断 诊断意见 影像诊断 诊断结论 结论 診斷 결론 판독_결론 진단 인상 "
        "wnioski rozpoznanie wniosek заключение вывод диагноз impressão conclusão diagnóstico"
    ),
    "labels": (
        "labels label finding_labels class classes class_name category categories keywords keyword tags "
        "schlagworter schlagwoerter schlagworte stichworte stichworter etiketten kategorie kategorien klasse "
        "klassen mots_cles mots_clefs etiquettes categorie classe palabras_clave etiquetas etiqueta "
        "categoria clase parole_chiave etichette etichetta trefwoorden ラベル タグ 分類 カテゴリ カテゴリー "
        "クラス 标签 类别 分类 標籤 類別 라벨 레이블 태그 분류 클래스 etykiety etykieta kategorie_obrazu "
        "klasa метки метка теги класс категория rótulo rótulos palavras_chave"
    ),
    "id": "id",
    "split": "split subset partition data_split",
    "order": (
        "comment_number comment_no caption_number caption_no caption_index caption_id sentence_number "
        "sentence_id sent_id sentid"
    ),
    "group": (
        "group patient_id patientid patient subject_id patienten_id patientennummer id_patient id_paciente "
        "paciente id_paziente paziente patientnummer 患者id 患者番号 患者 病人id 患者编号 病人编号 病人 "
        "患者編號 환자_id 환자번호 환자_번호 환자 pacjent id_pacjenta numer_pacjenta пациент id_пациента "
        "номер_пациента id_do_paciente utente"
    ),
}
# Columns of these names are texts of a table that has no other: short, and often of something else.
LAST_TEXTS: Final = ("alt", "title", "titel", "titre", "titulo", "titolo")
_BETWEEN: Final = re.compile(r"[\s_'’-]+")


def normal_name(name: str) -> str:
    """The name of a column in small letters without accents, with _ between its words."""
    plain = unicodedata.normalize("NFKD", _BETWEEN.sub("_", name.strip().casefold()))
    return "".join(sign for sign in plain if not unicodedata.combining(sign))


# As `normal_name` writes them; of a table with several, the first is taken.
NAMES: Final[dict[Role, tuple[str, ...]]] = {
    role: tuple(dict.fromkeys(map(normal_name, names.split()))) for role, names in _SPELLED.items()
}
