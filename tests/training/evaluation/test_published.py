from training.evaluation.published import published_results


def test_results_are_found_however_the_data_set_is_written() -> None:
    assert published_results("Flickr30K") == published_results("flickr-30k") == published_results("f30k")
    assert published_results("CheXpert 8x200")
    assert published_results("flickr8k") == published_results("") == ()


def test_the_averages_of_chexpert_8x200() -> None:
    averages = {result.method: result.figures["mean"] for result in published_results("chexpert8x200")}
    assert averages == {"chance": 12.5, "ConVIRT": 48.3, "InfoNCE": 48.6, "ReCo": 51.5}
